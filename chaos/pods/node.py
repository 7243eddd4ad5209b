"""A node of a cluster: the pod of an agent on it, in life after life of its container."""

from collections.abc import Callable
from pathlib import Path

from chaos.error import ChaosError
from chaos.pods.agent_pod import AgentPod
from chaos.pods.container import Contained, began_ticks, contained

__all__ = ["PodNode"]


class PodNode:
    """Nobody starts an agent here but Kubernetes: `start` takes up the container that is there."""

    def __init__(
        self, name: str, newest: Callable[[str], AgentPod | None], logs: Callable[[str], str]
    ) -> None:
        """`newest`: the pod of a node as it was last seen; `logs`: the last lines of a pod."""
        self.name = name
        self.life = 0
        self.is_ending = False
        self._newest, self._logs = newest, logs
        self._containers: dict[int, str] = {}
        self._agent: Contained | None = None
        self.pod: AgentPod | None = None
        """The one whose life is meant."""

    def start(self) -> None:
        """Take up the container that serves now; without effect if there is no new one."""
        if not self.has_successor():
            return
        pod = self._newest(self.name)
        assert pod is not None
        self._agent = first_process(pod)
        self.pod = pod
        self.life += 1
        self.is_ending = False
        self._containers[self.life] = pod.container

    def has_successor(self) -> bool:
        """Return whether another container is ready than the one that we know."""
        pod = self._newest(self.name)
        return (
            pod is not None
            and pod.is_ready
            and not pod.is_deleted
            and pod.container != self._containers.get(self.life)
        )

    @property
    def agent_pid(self) -> int:
        """The container's first process, as this machine sees it."""
        assert self._agent is not None
        return self._agent.pid

    @property
    def exit_code(self) -> int | None:
        """None while the container's first process runs; nobody tells us how it ended."""
        if self._agent is None:
            return 0
        try:
            stat = Path(f"/proc/{self._agent.pid}/stat").read_text()
        except OSError:
            return 0
        is_dead = stat.rpartition(")")[2].split()[0] in "ZX"
        return 0 if is_dead or began_ticks(stat) != self._agent.began_ticks else None

    def workers_of(self, life: int) -> tuple[int, ...]:
        """List the workers that are there of one life of the container."""
        return tuple(
            each.pid for each in contained(self._containers.get(life, "")) if each.is_worker
        )

    def last_words(self) -> str:
        """Return the last line that the pod wrote."""
        return self._logs(self.pod.name) if self.pod is not None else ""


def first_process(pod: AgentPod) -> Contained:
    """Find the first process of an agent's container.

    Raises:
        ChaosError: it is not on this machine.
    """
    for each in contained(pod.container):
        if each.inner_pid == 1:
            return each
    raise ChaosError(
        f"The pod {pod.name} on {pod.node} does not run on this machine, and clocks of several "
        "machines are not compared: take a cluster that is whole on this one (`make kube-up`), "
        "and run chaos as root."
    )
