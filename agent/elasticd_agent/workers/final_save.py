"""Has a job's state saved on this node when the job ends before its training does.

A worker that called `elasticd.run` is asked to save first: it leaves its world after a step that
all ranks agree on, and answers when that step is durable. Then it is ended like any other worker,
within the rest of its grace period. A worker that does not answer is ended in the same time.
"""

from collections.abc import Callable
from dataclasses import dataclass

from elasticd.channel.worker import Left
from elasticd.records.member import Saved
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.clock import now_s
from elasticd_agent.workers.attached_workers import AttachedWorkers

__all__ = ["FinalSaves", "end_share_s"]

END_LIMIT_S, END_SHARE = 2.0, 0.2
"""What a worker keeps of the grace for its own end, from SIGTERM to SIGKILL: a limit and a
share."""

log = get_logger()


def end_share_s(grace_s: float) -> float:
    """Return how long before the end of its grace a worker gets SIGTERM, whether it
    saved or not.
    """
    return min(END_LIMIT_S, END_SHARE * grace_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    rank: int
    until_s: float
    end: Callable[[float], None] | None
    """Ends the worker with so much grace; None if that is decided elsewhere."""


class FinalSaves:
    """Ask one job's workers to save last.

    All methods run on the owner's thread; a worker is known by its process number.
    """

    def __init__(self, attached: AttachedWorkers, *, is_wanted: bool) -> None:
        """`is_wanted` is True if the job has checkpoints."""
        self._attached, self._is_wanted = attached, is_wanted
        attached.left = self._left
        self._asked: dict[int, _Asked] = {}
        self._ended: set[int] = set()
        self.saved: Saved | None = None
        """What the workers here have told so far; None: nobody was asked."""

    def ask(
        self, pid: int, *, rank: int, grace_s: float, end: Callable[[float], None] | None
    ) -> bool:
        """Ask a worker to leave its world and save; return False if it is in no world, so that
        there is nothing to save.
        """
        if not (self._is_wanted and self._attached.is_inside(pid) and grace_s > 0):
            return False
        if pid in self._asked:
            return True
        self._asked[pid] = _Asked(rank=rank, until_s=now_s() + grace_s, end=end)
        # What is left of the time is for the way there and back, and for the end of the process.
        within_s = grace_s - 2 * end_share_s(grace_s)
        self._attached.leave(pid, 0, save_within_s=within_s)
        return True

    def resume(self, pid: int) -> None:
        """Take note that the job and this worker go on: the worker may be asked again, with a new
        limit.
        """
        self._asked.pop(pid, None)
        self.saved = None

    def is_asked(self, pid: int | None) -> bool:
        """Return whether the worker was asked, and has not answered yet."""
        return pid in self._asked

    def is_ended(self, pid: int | None) -> bool:
        """Return whether the worker has answered and was ended then."""
        return pid in self._ended

    def forget(self, pid: int) -> None:
        """Take note that it has ended; if it was asked and did not answer, that is logged."""
        self._ended.discard(pid)
        asked = self._asked.pop(pid, None)
        progress = self._attached.progress_of(pid)
        if asked is None or progress is None or progress.has_returned:
            return
        why = f"rank {asked.rank} ended before it had saved its part"
        self._note(Saved(at_step=progress.step, why=why))

    def _left(self, pid: int, message: Left) -> None:
        asked = self._asked.pop(pid, None)
        if asked is None:
            return
        self._note(Saved(at_step=message.step, durable_step=message.durable_step, why=message.why))
        if asked.end is not None:
            self._ended.add(pid)
            asked.end(max(0.0, asked.until_s - now_s()))

    def _note(self, saved: Saved) -> None:
        log.info("state.saved" if not saved.why else "state.not_saved", words=saved.sentence)
        self.saved = saved if self.saved is None else self.saved + saved
