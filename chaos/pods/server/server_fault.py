"""Faults of what serves all nodes: the API server, etcd, the operator, the agents, Prometheus."""

import os
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chaos.history.tail import Tail
from chaos.plan.fault import Kind
from chaos.pods.active_fault import ActiveFaults, at_most_every
from chaos.pods.container import contained
from chaos.pods.program import Program, api_etcd, api_server
from chaos.pods.server.older_version import python_path, unpack
from chaos.process import send
from chaos.site import Blow, Deed, do_nothing

if TYPE_CHECKING:
    from chaos.pods.cluster import Variables
    from chaos.pods.site import PodSite

__all__ = ["ServerFaults"]

OPERATOR = "app.kubernetes.io/component=operator"
PATH = "PYTHONPATH"
ASK_S = 0.5


class ServerFaults:
    def __init__(self, site: "PodSite", active: ActiveFaults) -> None:
        self._site, self._active = site, active
        self._older: Blow | None = None
        """The version before, while the agents have it."""

    def aim(self, kind: Kind, number: int, tail: Tail) -> Blow | None:
        """Return what to do; None: that is not possible at this moment. `number`: the fault's."""
        match kind:
            case Kind.OPERATOR_KILL:
                return self._operator()
            case Kind.API_STOP:
                return self._freeze("the API server", api_server(self._site.cluster.host))
            case Kind.API_ETCD_STOP:
                return self._freeze("the API server's etcd", api_etcd(self._site.cluster.host))
            case Kind.ETCD_KILL | Kind.ETCD_STOP:
                return self._etcd(is_kill=kind is Kind.ETCD_KILL)
            case Kind.JOB_SCALE:
                return self._scale(tail)
            case Kind.AGENT_ROLLOUT:
                mark = f"{self._site.name}-{number}"
                return self._roll(
                    "the agents' DaemonSet", lambda: self._site.cluster.roll_agents(mark)
                )
            case Kind.AGENT_OTHER_VERSION:
                return self._other_version()
            case Kind.PROMETHEUS_FEWER | Kind.PROMETHEUS_STOP | Kind.PROMETHEUS_ABSURD:
                return self._prometheus(kind, tail)
        raise NotImplementedError(kind)

    def _freeze(self, name: str, program: Program | None) -> Blow | None:
        if program is None:
            return None
        return self._active.blow(f"{name} (pid {program.pid})", program.stop, program.resume)

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
            is_undone=at_most_every(ASK_S, lambda: cluster.is_replaced(pods, OPERATOR)),
        )

    def _etcd(self, *, is_kill: bool) -> Blow | None:
        """Kill or freeze a member; elasticd's etcd has one where it is tried out."""
        cluster = self._site.cluster
        pods = [each for each in cluster.etcd_pods() if each.container]
        if not pods:
            return None
        member = pods[-1]
        processes = contained(member.container)
        victim = f"{member.name} on {member.node}"
        if not is_kill:
            pids = [each.pid for each in processes]
            return self._active.blow(
                victim,
                lambda: _none(send(pids, signal.SIGSTOP)),
                lambda: _none(send(pids, signal.SIGCONT)),
            )
        first = [each.pid for each in processes if each.inner_pid == 1]
        if not first:
            return None

        def is_back() -> bool:
            found = {each.name: each for each in cluster.etcd_pods()}.get(member.name)
            return found is not None and found.is_ready and found.container != member.container

        return Blow(
            victim=victim,
            strike=lambda: os.kill(first[0], signal.SIGKILL),
            undo=do_nothing,
            is_undone=at_most_every(ASK_S, is_back),
        )

    def _scale(self, tail: Tail) -> Blow:
        cluster, job, nodes = self._site.cluster, self._site.name, len(self._site.nodes)
        return self._active.blow(
            f"the job, to {nodes - 1} of {nodes} nodes",
            lambda: cluster.scale_job(job, nodes - 1),
            lambda: cluster.scale_job(job, nodes),
            is_undone=_newer_world(tail),
        )

    def _prometheus(self, kind: Kind, tail: Tail) -> Blow | None:
        server, nodes = self._site.prometheus, len(self._site.nodes)
        assert server is not None
        match kind:
            case Kind.PROMETHEUS_FEWER:
                return self._active.blow(
                    f"the load, for {nodes - 1} of {nodes} nodes",
                    lambda: server.order(f"truth {nodes - 1}"),
                    lambda: server.order(f"truth {nodes}"),
                    is_undone=_newer_world(tail),
                )
            case Kind.PROMETHEUS_ABSURD:
                return self._active.blow(
                    "what Prometheus answers",
                    lambda: server.order("absurd"),
                    lambda: server.order(f"truth {nodes}"),
                )
            case _:
                pids = server.pids()
                if not pids:
                    return None
                return self._active.blow(
                    f"Prometheus (pid {pids[0]})",
                    lambda: _none(send(pids, signal.SIGSTOP)),
                    lambda: _none(send(pids, signal.SIGCONT)),
                )

    def _other_version(self) -> Blow:
        """Roll the agents to the version before, or back to their own if they have that."""
        if self._older is not None:
            return self._roll("the agents, back to their version", self._to_own_version)
        cluster = self._site.cluster
        commit = self._site.scenario.site.version_before
        here, inside = self._site.records / "before", self._site.records_inside / "before"
        unpack(commit, here)
        before: Variables = {}

        def give() -> None:
            before.update(cluster.agents_variables(PATH))
            cluster.set_agents_variables({PATH: {"value": python_path(inside)}})

        def give_back() -> None:
            cluster.set_agents_variables(before)

        older = self._active.blow("the agents' version", give, give_back)

        def to_older() -> None:
            self._older = older
            older.strike()

        return self._roll(f"the agents, to {commit[:8]}", to_older)

    def _to_own_version(self) -> None:
        assert self._older is not None and self._older.undo is not None
        self._older.undo()
        self._older = None

    def _roll(self, victim: str, change: Deed) -> Blow:
        """Replace the agents' pods, one node after the other; each leaves in order."""
        cluster, nodes = self._site.cluster, self._site.nodes

        def strike() -> None:
            for node in nodes:
                node.is_ending = True
            change()

        def is_over() -> bool:
            return cluster.is_rolled_out() and all(node.has_successor() for node in nodes)

        def take_up() -> None:
            for node in nodes:
                node.start()

        return Blow(
            victim=victim,
            strike=strike,
            undo=take_up,
            is_undone=at_most_every(ASK_S, is_over),
            is_restart=True,
        )


def _newer_world(tail: Tail) -> Callable[[], bool]:
    """Return what says whether a newer world was entered than now.

    Whoever wishes for another size is not obeyed in a given time: a wish that is taken back before
    was none.
    """
    before = tail.generation
    return lambda: tail.generation > before


def _none(result: Sequence[int] | None) -> None:
    """Drop a result, where only the deed counts."""
