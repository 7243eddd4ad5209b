"""How each fault is brought about and undone, where agents are processes of this machine."""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.history.tail import Tail
from chaos.plan.fault import TRAITS, Fault, Kind, Point, Scope
from chaos.process import Process, send
from chaos.site import Blow, Deed, do_nothing

if TYPE_CHECKING:
    from chaos.processes.node import ProcessNode
    from chaos.processes.site import ProcessSite

__all__ = ["Injection"]


class Injection:
    def __init__(self, site: "ProcessSite") -> None:
        self._site = site

    def aim(self, fault: Fault, tail: Tail) -> Blow | None:
        """Find the victim; None: there is none at this moment."""
        match TRAITS[fault.kind].scope:
            case Scope.WORKER:
                return self._worker(fault, tail)
            case Scope.NODE:
                return self._node(fault, tail)
            case Scope.ETCD:
                return self._etcd(fault)
            case Scope.JOB:
                return self._scale()
            case Scope.CLUSTER:
                raise NotImplementedError(fault.kind)

    # --- workers

    def _worker(self, fault: Fault, tail: Tail) -> Blow | None:
        workers = _serving(self._site.nodes[fault.node], tail)
        if fault.worker >= len(workers):
            return None
        pid = workers[fault.worker].pid
        entered = tail.ranks[str(pid)]
        victim = f"rank {entered.rank} on n{fault.node} (pid {pid})"
        undo = (lambda: _none(send([pid], signal.SIGCONT))) if fault.for_s else None
        if fault.is_own_deed:
            if fault.kind is Kind.WORKER_SLOW:
                undo = do_nothing  # It ends by itself; what counts is when.
            elif fault.kind is not Kind.WORKER_STOP:
                undo = None
            return Blow(
                victim=victim,
                strike=lambda: self._order(pid, fault),
                undo=undo,
                is_order=True,
                is_there=Path(f"/proc/{pid}").exists,
                withdraw=self._withdraw,
                node=self._site.nodes[fault.node].name,
                struck_pid=pid,
            )
        number = {
            Kind.WORKER_KILL: signal.SIGKILL,
            Kind.WORKER_TERM: signal.SIGTERM,
            Kind.WORKER_CRASH: signal.SIGSEGV,
            Kind.WORKER_STOP: signal.SIGSTOP,
        }[fault.kind]
        if fault.kind is not Kind.WORKER_STOP:
            undo = None
        return Blow(
            victim=victim,
            strike=lambda: _none(send([pid], number)),
            undo=undo,
            node=self._site.nodes[fault.node].name,
            struck_pid=pid,
        )

    def _withdraw(self) -> None:
        for path in (self._site.records / "orders").iterdir():
            path.unlink(missing_ok=True)

    def _order(self, pid: int, fault: Fault) -> None:
        point = fault.point if fault.point is not Point.ANYWHERE else Point.BACKWARD
        words = (fault.kind, point, fault.number, fault.amount_s, fault.for_s)
        folder = self._site.records / "orders"
        partial = folder / f"{pid}.partial"
        partial.write_text("|".join(map(str, words)))
        partial.rename(folder / str(pid))

    # --- nodes

    def _node(self, fault: Fault, tail: Tail) -> Blow | None:
        node = self._site.nodes[fault.node]
        if node.exit_code is not None or not _serving(node, tail):
            return None
        match fault.kind:
            case Kind.AGENT_KILL:
                return self._deadly(node, lambda: node.send(signal.SIGKILL))
            case Kind.NODE_KILL:
                # Stopped first: a pool that is killed before its agent would be seen by it.
                return self._deadly(node, lambda: self._power_off(node))
            case Kind.NODE_LEAVE:
                return self._deadly(node, lambda: node.send(signal.SIGTERM))
            case Kind.AGENT_STOP:
                return Blow(
                    victim=f"agent of {node.name}",
                    strike=lambda: node.send(signal.SIGSTOP),
                    undo=lambda: node.send(signal.SIGCONT),
                    node=node.name,
                )
            case Kind.NODE_DRAIN:
                return Blow(
                    victim=node.name,
                    strike=lambda: self._site.planned_changes.drain(node.name),
                    undo=lambda: self._site.planned_changes.undrain(node.name),
                    node=node.name,
                )
            case Kind.NODE_STOP:
                pids = [process.pid for process in node.processes()]
                return Blow(
                    victim=f"{node.name}, {len(pids)} processes",
                    strike=lambda: _none(send(pids, signal.SIGSTOP)),
                    undo=lambda: _none(send(pids, signal.SIGCONT)),
                    node=node.name,
                )
            case _:
                return self._network(fault, node)

    def _deadly(self, node: "ProcessNode", strike: Deed) -> Blow:
        def end() -> None:
            node.is_ending = True
            strike()

        return Blow(
            victim=f"{node.name}, life {node.life}",
            strike=end,
            undo=node.start,
            is_restart=True,
            is_undone=lambda: node.exit_code is not None,
            node=node.name,
        )

    @staticmethod
    def _power_off(node: "ProcessNode") -> None:
        pids: Sequence[int] = [process.pid for process in node.processes()]
        send(pids, signal.SIGSTOP)
        send(pids, signal.SIGKILL)

    def _network(self, fault: Fault, node: "ProcessNode") -> Blow:
        network = self._site.network
        assert network is not None
        name, other = node.name, self._site.nodes[self._after(fault)].name
        strikes: dict[Kind, Deed] = {
            Kind.NODE_CUT: lambda: network.cut(name),
            Kind.NODE_MUTE: lambda: network.cut(name, is_deaf=False),
            Kind.NODE_DEAF: lambda: network.cut(name, is_mute=False),
            Kind.NODE_PART: lambda: network.part(name, other),
            Kind.NODE_DELAY: lambda: network.delay(name, fault.amount_s),
        }
        return Blow(
            victim=f"network of {name}",
            strike=strikes[fault.kind],
            undo=lambda: network.repair(name),
            node=name,
            other_node=other if fault.kind is Kind.NODE_PART else "",
        )

    def _after(self, fault: Fault) -> int:
        return (fault.node + 1) % len(self._site.nodes)

    # --- the job

    def _scale(self) -> Blow:
        nodes = len(self._site.nodes)
        return Blow(
            victim=f"the job, to {nodes - 1} of {nodes} nodes",
            strike=lambda: self._site.planned_changes.scale(nodes - 1),
            undo=lambda: self._site.planned_changes.scale(nodes),
        )

    # --- etcd

    def _etcd(self, fault: Fault) -> Blow:
        etcd = self._site.etcd
        members = etcd.by_role()
        match fault.kind:
            case Kind.ETCD_LEADER_KILL | Kind.ETCD_LEADER_STOP:
                chosen = members[-1:]
            case Kind.ETCD_QUORUM_STOP:
                chosen = members[len(members) // 2 :]
            case _:
                # A follower where there is one.
                followers = members[:-1] or members
                chosen = [followers[fault.node % len(followers)]]
        is_kill = fault.kind in (Kind.ETCD_KILL, Kind.ETCD_LEADER_KILL)
        deed = etcd.kill if is_kill else etcd.stop

        def each(do: Callable[[str], None]) -> Deed:
            return lambda: _none([do(name) for name in chosen])  # type: ignore[func-returns-value]

        return Blow(victim=f"etcd {','.join(chosen)}", strike=each(deed), undo=each(etcd.resume))


def _serving(node: "ProcessNode", tail: Tail) -> list[Process]:
    """List the workers of a node that take part in the newest generation."""
    return [
        worker
        for worker in node.workers()
        if (entered := tail.ranks.get(str(worker.pid))) and entered.generation == tail.generation
    ]


def _none(result: object) -> None:
    """Drop a result, where only the deed counts."""
