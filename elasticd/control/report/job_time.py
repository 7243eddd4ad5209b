"""The time account of all slots of a job, joined from the records of its agents. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elasticd.goodput.cause import TimeCause
from elasticd.goodput.formula import attainment, causes_of, goodput, total
from elasticd.records.account.time_spent import JobProgress, TimeSpent
from elasticd.records.codec import decode

__all__ = ["JobTime", "job_time"]

EVERY_S = 15.0
"""How often an agent writes its account; in jobs of more nodes than this, it is a second for each
node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTime:
    """The account as the agents last wrote it: up to 15 s ago while the job runs."""

    seconds: Mapping[TimeCause, float]
    """The slot-seconds of each cause."""
    wanted_s: float = 0.0
    """The wanted slots times the elapsed time, in slot-seconds; 0 if it is not known. Each slot
    that the job holds counts up to the moment to which the account counts it."""
    has_steps: bool = False
    """False if no steps were seen: then the cause `train` means that workers ran."""

    step: int = 0
    """The applied steps at that time; 0 if there were none, or if they are not known."""
    generation_s: float = 0.0
    """The age of the generation in seconds at the time of writing, by the writer's clock."""
    at_unix_s: float = 0.0
    """The time at which the node of rank 0 last wrote, by its clock; 0 if it is not known."""
    unwritten_agents: int = 0
    """The agents of a job that is over which did not write their last account."""
    unwritten_s: float = 0.0
    """The most slot-seconds that these accounts lack."""

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())

    @property
    def goodput(self) -> float | None:
        """Return the share of the slots' time that trained.

        None: there was no time, or the accounts may lack as much as they have.
        """
        return goodput(self.seconds) if self.unwritten_s < self.total_s else None

    @property
    def attainment(self) -> float | None:
        """Return the training time as a share of the wanted time; None if it is not known."""
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
            "unwritten_agents": self.unwritten_agents,
        }


def job_time(
    progress: bytes | None, spent: Iterable[bytes], uid: str, *, is_over: bool = False
) -> JobTime | None:
    """Add up the job's progress and the accounts of its agents; None if there are no records.

    `is_over` is true if the job is over, so that no agent has anything more to write.

    Raises: NotSupported: a record has a newer schema.
    """
    found = decode(JobProgress, progress) if progress is not None else None
    if found is not None and found.uid != uid:
        found = None
    records = [record for value in spent if (record := decode(TimeSpent, value)).uid == uid]
    if found is None and not records:
        return None
    parts = [record.seconds for record in records]
    unwritten = [each for each in records if is_over and not (each.is_last or each.is_concluded)]
    unwritten_s = sum(each.slots for each in unwritten) * max(EVERY_S, len(records))
    if found is None:
        return JobTime(
            seconds=total(map(causes_of, parts)),
            unwritten_agents=len(unwritten),
            unwritten_s=unwritten_s,
        )
    return JobTime(
        seconds=total(map(causes_of, (found.seconds, *parts))),
        wanted_s=max(0.0, found.wanted_s - sum(_unwritten_s(each, found) for each in records)),
        has_steps=found.has_steps,
        step=found.step,
        generation_s=found.generation_s,
        at_unix_s=found.at_unix_s,
        unwritten_agents=len(unwritten),
        unwritten_s=unwritten_s,
    )


def _unwritten_s(record: TimeSpent, progress: JobProgress) -> float:
    """Return the wanted slot-seconds that this agent has not yet accounted for.

    The node of rank 0 counts the wanted slots three times as often as other agents write their
    account. So even in a job that trains all the time, up to 15 s of each slot of other agents
    would seem to be lost. The time between two records is the difference of the ages of their
    generation.
    """
    slots = record.slots - record.held.get(TimeCause.SPARE.value, 0)
    if record.is_last or record.is_concluded or record.generation > progress.generation:
        return 0.0
    is_same = record.generation == progress.generation
    # The agent had not seen this generation yet, so it wrote before the generation began.
    return slots * (progress.generation_s - (record.generation_s if is_same else 0.0))
