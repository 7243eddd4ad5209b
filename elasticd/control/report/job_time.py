"""Where the time of all slots of a job went, put together from what its agents wrote. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elasticd.goodput.cause import TimeCause
from elasticd.goodput.formula import attainment, causes_of, goodput, total
from elasticd.records.account.time_spent import JobProgress, TimeSpent
from elasticd.records.codec import decode

__all__ = ["JobTime", "job_time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTime:
    """The account as its agents wrote it last: while the job runs, a quarter of a minute ago."""

    seconds: Mapping[TimeCause, float]
    """Slot-seconds."""
    wanted_s: float = 0.0
    """Wanted slots times the time that went by, in slot-seconds, each slot that is held up to the
    moment up to which it is accounted for; 0 if not known."""
    has_steps: bool = False
    """False if no steps were seen: then `train` means that workers ran."""

    step: int = 0
    """The applied steps by then; 0 if there were none, or if not known."""
    generation_s: float = 0.0
    """The age of the generation when that was written, on the writer's clock."""
    at_unix_s: float = 0.0
    """When the node of rank 0 last wrote, by its clock; 0 if not known."""

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())

    @property
    def goodput(self) -> float | None:
        """The share of the slots' time that trained; None if there was no time."""
        return goodput(self.seconds)

    @property
    def attainment(self) -> float | None:
        """Training time compared with what was wished for; None if not known."""
        return attainment(self.seconds, self.wanted_s)

    @property
    def plain(self) -> dict[str, object]:
        """Return the time account as JSON for programs."""
        return {
            "seconds": {cause.value: round(self.seconds.get(cause, 0.0), 2) for cause in TimeCause},
            "total_s": round(self.total_s, 2),
            "wanted_s": round(self.wanted_s, 2),
            "goodput": self.goodput,
            "attainment": self.attainment,
            "has_steps": self.has_steps,
        }


def job_time(progress: bytes | None, spent: Iterable[bytes], uid: str) -> JobTime | None:
    """Add up the job's progress and what its agents counted; None if nobody wrote any.

    Raises: NotSupported: a record of a newer schema.
    """
    found = decode(JobProgress, progress) if progress is not None else None
    if found is not None and found.uid != uid:
        found = None
    records = [record for value in spent if (record := decode(TimeSpent, value)).uid == uid]
    if found is None and not records:
        return None
    parts = [record.seconds for record in records]
    if found is None:
        return JobTime(seconds=total(map(causes_of, parts)))
    return JobTime(
        seconds=total(map(causes_of, (found.seconds, *parts))),
        wanted_s=max(0.0, found.wanted_s - sum(_unwritten_s(each, found) for each in records)),
        has_steps=found.has_steps,
        step=found.step,
        generation_s=found.generation_s,
        at_unix_s=found.at_unix_s,
    )


def _unwritten_s(record: TimeSpent, progress: JobProgress) -> float:
    """Return for how many wanted slot-seconds this agent has still to say where they went.

    The node of rank 0 counts what is wanted three times as often as other agents write their
    account. So of a job that trains all the time, up to 15 s of each of their slots would seem to
    be lost. How far apart two records are follows from the age of their generation in each.
    """
    slots = record.slots - record.held.get(TimeCause.SPARE.value, 0)
    if record.is_last or record.is_concluded or record.generation > progress.generation:
        return 0.0
    is_same = record.generation == progress.generation
    # It had not seen this generation yet, so it wrote before that began.
    return slots * (progress.generation_s - (record.generation_s if is_same else 0.0))
