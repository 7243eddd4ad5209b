"""How each fault is brought about and undone, where agents are pods."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from chaos.fault import Fault, Kind
from chaos.pods.agent_pod import evictable, ranks_on
from chaos.pods.container import kubelet_of
from chaos.process import send
from chaos.site import Blow, Deed, do_nothing
from chaos.tail import Tail

if TYPE_CHECKING:
    from chaos.pods.node import PodNode
    from chaos.pods.site import PodSite

__all__ = ["Injection"]

OPERATOR = "app.kubernetes.io/component=operator"
ASK_S = 0.5


class Injection:
    """What stays when it is not undone (a cordon, a frozen kubelet) stands in `standing`."""

    def __init__(self, site: "PodSite") -> None:
        self._site = site
        self.standing: dict[str, Deed] = {}
        """What undoes it, by victim."""

    def aim(self, fault: Fault, tail: Tail) -> Blow | None:
        """Find the victim; None: there is none at this moment."""
        if fault.kind is Kind.OPERATOR_KILL:
            return self._operator()
        node = self._site.nodes[fault.node]
        ranks = ranks_on(node.name, tail.ranks.values(), tail.generation)
        if node.exit_code is not None or node.pod is None or not ranks:
            return None
        cluster, pod = self._site.cluster, node.pod.name
        victim = f"{pod} on {node.name}, rank {', '.join(map(str, ranks))}"
        match fault.kind:
            case Kind.POD_DELETE:
                return _deadly(node, victim, partial(cluster.delete_pod, pod))
            case Kind.POD_FORCE_DELETE:
                return _deadly(node, victim, partial(cluster.delete_pod, pod, is_forced=True))
            case Kind.CONTAINER_KILL:
                return _deadly(node, victim, partial(os.kill, node.agent_pid, signal.SIGKILL))
            case Kind.NODE_CORDON | Kind.NODE_EVICT:
                return self._cordon(node.name, is_evicted=fault.kind is Kind.NODE_EVICT)
            case Kind.KUBELET_STOP:
                return self._freeze_kubelet(node.name)
        raise NotImplementedError(fault.kind)

    def undo_all(self) -> None:
        """Undo what stands, however the run came to its end."""
        for undo in list(self.standing.values()):
            undo()

    def _cordon(self, node: str, *, is_evicted: bool) -> Blow:
        cluster = self._site.cluster

        key = f"cordon of {node}"

        def strike() -> None:
            self.standing[key] = undo
            cluster.cordon(node)
            for pod in evictable(cluster.pods(), node) if is_evicted else ():
                cluster.evict(pod)

        def undo() -> None:
            cluster.cordon(node, is_cordoned=False)
            self.standing.pop(key, None)

        return Blow(victim=node, strike=strike, undo=undo, node=node)

    def _freeze_kubelet(self, node: str) -> Blow | None:
        pids = kubelet_of(node)
        if not pids:
            return None

        key = f"kubelet of {node}"

        def strike() -> None:
            self.standing[key] = undo
            send(pids[:1], signal.SIGSTOP)

        def undo() -> None:
            # The kubelet first: its wrapper, once awake, would find it stopped again.
            send(pids, signal.SIGCONT)
            self.standing.pop(key, None)

        return Blow(victim=f"{key} (pid {pids[0]})", strike=strike, undo=undo, node=node)

    def _operator(self) -> Blow | None:
        cluster = self._site.cluster
        pods = [str(each["metadata"]["name"]) for each in cluster.pods(OPERATOR)]
        if not pods:
            return None

        def strike() -> None:
            for pod in pods:
                cluster.delete_pod(pod, is_forced=True)

        return Blow(
            victim=", ".join(pods),
            strike=strike,
            undo=do_nothing,
            is_undone=_at_most_every(ASK_S, lambda: cluster.is_replaced(pods, OPERATOR)),
        )


def _deadly(node: "PodNode", victim: str, strike: Deed) -> Blow:
    def end() -> None:
        node.is_ending = True
        strike()

    return Blow(
        victim=victim,
        strike=end,
        undo=node.start,
        is_undone=node.has_successor,
        is_restart=True,
        node=node.name,
    )


def _at_most_every(each_s: float, ask: Callable[[], bool]) -> Callable[[], bool]:
    """Ask only so often: the runner asks at each of its ticks."""
    next_s = time.monotonic() + each_s

    def is_so() -> bool:
        nonlocal next_s
        if time.monotonic() < next_s:
            return False
        next_s = time.monotonic() + each_s
        return ask()

    return is_so
