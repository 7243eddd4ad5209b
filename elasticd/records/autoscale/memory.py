"""What the autoscaler must remember of one job from one evaluation to the next.

It is a record, so that the next leader decides the same. Times are seconds on the clock of the
process that wrote it: `now_s` is that clock at that moment, and `shifted` moves all times to the
reader's clock, as if no time had passed in between. So a change of leader makes windows longer,
never shorter, and no two hosts' clocks are compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elasticd.records.ids import Generation

__all__ = ["Memory", "Proposed", "Resized", "shifted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """What a rule proposed at one time, before stabilization."""

    at_s: float
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resized:
    """A change of size that the autoscaler made."""

    at_s: float
    delta: int
    """How many nodes more; negative for fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the autoscaler remembers of one job between its decisions."""

    uid: str = ""
    now_s: float = 0.0
    """The writer's clock when this was written."""
    at_unix_s: float = 0.0
    """The same moment by the writer's wall clock, for people; nothing is decided by it."""
    proposed: tuple[Proposed, ...] = ()
    """The proposals of the target rule, as far back as its windows reach."""
    resized: tuple[Resized, ...] = ()
    """The changes of size, as far back as rates and cooldown reach."""
    wanted: int = 0
    """The size that the autoscaler wrote last; 0 if none."""
    decisions: int = 0
    """The number of the newest decision."""
    open_decision: int = 0
    """The decision whose outcome is not known yet; 0 if none."""
    judged_from: Generation = Generation(0)
    """The generation in which the open decision came true; 0 if it has not yet."""
    judged_steps: int = 0
    """The steps of that generation's windows so far."""
    judged_s: float = 0.0
    """The seconds that they took."""
    held: str = ""
    """Why nothing is done, as a word of a closed list; empty if nothing is held."""
    held_since_s: float = 0.0
    held_detail: str = ""
    """The same as a sentence, with the numbers or the words behind it."""
    missing: str = ""
    """What the current wish lacks, as a sentence: nodes that are not there, or room below MAX."""
    sentences: Mapping[str, str] = field(default_factory=dict)
    """What each rule said last, by the rule's name, for people."""
    whole_since_s: Mapping[str, float] = field(default_factory=dict)
    """For each metric by name: since when it has been there without a gap. A metric that is missing
    now is not in it."""
    idle_since_s: float | None = None
    idle_from_nodes: int = 0
    """How many nodes were wanted when the rule spoke first; kept until the job has them again."""
    is_dry_run: bool = False
    """True if decisions were only written down at the last evaluation, by the policy's word or by
    that of the process that leads."""
    decided_s: float | None = None
    """When the newest decision was made, from which the cooldown counts."""
    target_refused: int = 0
    """The least size that brought the supplies of the target rule nothing; 0 if none. It counts as
    long as the curve refuses that size too."""
    generation: Generation = Generation(0)
    """The world that trained at the last evaluation."""
    generation_since_s: float = 0.0
    """Since when that world has been seen."""
    policy_at_unix_s: float = 0.0
    """The policy that this belongs to (`Policy.set_at_unix_s`); another one begins afresh."""
    unknown: Mapping[str, object] = field(default_factory=dict)


def shifted(memory: Memory, now_s: float) -> Memory:
    """Return the memory on a clock that reads `now_s`, as if it had been written at this moment."""
    by_s = now_s - memory.now_s
    return replace(
        memory,
        now_s=now_s,
        proposed=tuple(replace(each, at_s=each.at_s + by_s) for each in memory.proposed),
        resized=tuple(replace(each, at_s=each.at_s + by_s) for each in memory.resized),
        held_since_s=memory.held_since_s + by_s,
        whole_since_s={name: at_s + by_s for name, at_s in memory.whole_since_s.items()},
        idle_since_s=memory.idle_since_s + by_s if memory.idle_since_s is not None else None,
        decided_s=memory.decided_s + by_s if memory.decided_s is not None else None,
        generation_since_s=memory.generation_since_s + by_s,
    )
