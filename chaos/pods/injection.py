"""How each fault is brought about and undone, where agents are pods."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.history.tail import Tail
from chaos.plan.fault import TRAITS, Fault, Kind, Point, Scope
from chaos.pods.active_fault import ActiveFaults
from chaos.pods.agent_pod import ranks_on
from chaos.pods.container import Contained, MemoryRoom, contained, process_name
from chaos.pods.node_fault import NodeFaults
from chaos.pods.server.server_fault import ServerFaults
from chaos.process import send
from chaos.site import Blow, do_nothing

if TYPE_CHECKING:
    from chaos.pods.node import PodNode
    from chaos.pods.site import PodSite

__all__ = ["Injection"]

SIGNALS = {
    Kind.WORKER_KILL: signal.SIGKILL,
    Kind.WORKER_TERM: signal.SIGTERM,
    Kind.WORKER_CRASH: signal.SIGSEGV,
    Kind.WORKER_STOP: signal.SIGSTOP,
}
OOM_ROOM_BYTES = 96 << 20
"""What a container may still take when its limit is to be hit."""


class Injection:
    def __init__(self, site: "PodSite") -> None:
        self._site = site
        self._active = ActiveFaults()
        self._of_node = NodeFaults(site, self._active)
        self._of_server = ServerFaults(site, self._active)

    def aim(self, fault: Fault, tail: Tail) -> Blow | None:
        """Find the victim; None: there is none at this moment."""
        scope = TRAITS[fault.kind].scope
        if scope not in (Scope.WORKER, Scope.NODE):
            return self._of_server.aim(fault.kind, fault.number, tail)
        node = self._site.nodes[fault.node]
        ranks = ranks_on(node.name, tail.ranks.values(), tail.generation)
        if node.exit_code is not None or node.pod is None or not ranks:
            return None
        if scope is Scope.WORKER:
            return self._worker(fault, tail, node)
        victim = f"{node.pod.name} on {node.name}, rank {', '.join(map(str, ranks))}"
        other = self._site.nodes[(fault.node + 1) % len(self._site.nodes)]
        return self._of_node.aim(fault.kind, node, victim, other)

    def undo_all(self) -> None:
        """Undo what stands, however the run came to its end."""
        self._active.undo_all()

    # --- workers

    def _worker(self, fault: Fault, tail: Tail, node: "PodNode") -> Blow | None:
        assert node.pod is not None
        everybody = contained(node.pod.container)
        first = next((each for each in everybody if each.inner_pid == 1), None)
        if first is None:
            return None
        serving = [
            (each, name)
            for each in everybody
            if each.is_worker
            and (name := process_name(node.pod.name, first, each)) in tail.ranks
            and tail.ranks[name].generation == tail.generation
        ]
        if fault.worker >= len(serving):
            return None
        worker, name = serving[fault.worker]
        rank = tail.ranks[name].rank
        victim = f"rank {rank} on {node.name} (pid {worker.inner_pid} of {node.pod.name})"
        if fault.is_own_deed:
            return self._ordered(fault, node, worker, name, victim)
        pid, number = worker.pid, SIGNALS[fault.kind]
        is_stop = fault.kind is Kind.WORKER_STOP
        return Blow(
            victim=victim,
            strike=lambda: _none(send([pid], number)),
            undo=(lambda: _none(send([pid], signal.SIGCONT))) if is_stop else None,
            node=node.name,
            struck_pid=worker.inner_pid,
        )

    def _ordered(
        self, fault: Fault, node: "PodNode", worker: Contained, name: str, victim: str
    ) -> Blow:
        """Have the worker do it itself, at its next step."""
        room = MemoryRoom(worker.pid)
        is_oom = fault.kind is Kind.WORKER_OOM
        limited = self._active.blow(
            f"limit of memory of {node.name}", lambda: room.limit(OOM_ROOM_BYTES), room.free
        )

        def strike() -> None:
            if is_oom:
                limited.strike()
            self._order(name, fault)

        undo = {
            Kind.WORKER_OOM: limited.undo,
            Kind.WORKER_SLOW: do_nothing,  # It ends by itself; what counts is when.
            Kind.WORKER_STOP: lambda: _none(send([worker.pid], signal.SIGCONT)),
        }.get(fault.kind)
        return Blow(
            victim=victim,
            strike=strike,
            undo=undo,
            is_order=True,
            is_there=Path(f"/proc/{worker.pid}").exists,
            withdraw=self._withdraw,
            node=node.name,
            struck_pid=worker.inner_pid,
        )

    def _order(self, name: str, fault: Fault) -> None:
        point = fault.point if fault.point is not Point.ANYWHERE else Point.BACKWARD
        words = (fault.kind, point, fault.number, fault.amount_s, fault.for_s)
        folder = self._site.records / "orders"
        partial = folder / f"{name}.partial"
        partial.write_text("|".join(map(str, words)))
        partial.chmod(0o644)
        partial.rename(folder / name)

    def _withdraw(self) -> None:
        for path in (self._site.records / "orders").iterdir():
            path.unlink(missing_ok=True)


def _none(result: object) -> None:
    """Drop a result, where only the deed counts."""
