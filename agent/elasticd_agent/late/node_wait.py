"""A node's report of the waits in its steps, from its workers' heartbeats.

A node is as late as its slowest rank, which is the one that waits least.
"""

from collections.abc import Iterable

from elasticd.channel.worker import Beat, Waits
from elasticd.goodput.wait_report import WaitReport
from elasticd.records.account.late import NodeWait
from elasticd.records.ids import Generation, Nonce, Slot
from elasticd.rendezvous.own_record import my_node
from elasticd.rendezvous.state import JobState

__all__ = ["NodeWaits"]


class NodeWaits:
    """Collect the waits of one job. The owner's thread uses it."""

    def __init__(self, kept: Iterable[Slot] = ()) -> None:
        """`kept`: slots whose workers were counted in an earlier membership of the job."""
        self._kept = set(kept)
        self.total_s = 0.0
        """Seconds for which committed steps of the workers here have waited; it only grows."""
        self._report = WaitReport()
        self._waits: dict[Slot, tuple[Generation, Waits]] = {}
        self._sums: dict[Slot, tuple[Nonce, float]] = {}

    def receive(
        self, slot: Slot, nonce: Nonce, beat: Beat, state: JobState, now_s: float
    ) -> NodeWait | None:
        """Take in a heartbeat; return what the other nodes should know, if it is new.

        It returns nothing before all workers of this node have reported in the current generation.
        """
        if slot in self._kept:
            self._kept.remove(slot)
            self._sums[slot] = nonce, beat.step_wait_s
        before, sum_s = self._sums.get(slot, (nonce, 0.0))
        sum_s = sum_s if before == nonce else 0.0  # Another process, which counts from 0.
        self.total_s += max(0.0, beat.step_wait_s - sum_s)
        self._sums[slot] = nonce, beat.step_wait_s
        if beat.waits is None or not beat.generation:
            return None
        self._waits[slot] = beat.generation, beat.waits
        node, world = my_node(state), state.world
        if node is None or world is None or beat.generation != world.generation:
            return None
        if len(world.nodes) < 2:
            return None  # There is nobody to compare with.
        found = [self._waits.get(worker.slot) for worker in node.workers]
        waits = [each[1] for each in found if each is not None and each[0] == world.generation]
        if len(waits) < len(found):
            return None
        least = min(waits, key=lambda each: each.wait_s)
        wait = NodeWait(
            generation=world.generation,
            steps=min(each.steps for each in waits),
            step_s=least.step_s,
            wait_s=least.wait_s,
            low_s=least.low_s,
            high_s=least.high_s,
        )
        return self._report.due(wait, len(world.nodes), now_s)
