"""How a dead agent's slots spent the time since its last record, as another node infers. Pure.

An agent writes its account a few times a minute, so what it counted since then dies with it. But
the ranks of a world make each step together. So its slots that trained did the same as a slot of
the same generation on this node: steps, then the lost step, then the time until the failure was
noticed. A slot that was spare, or whose next worker was starting, stayed so until the generation
ended. The remaining time is unexplained, and so is time at which this node was not in the job.

Two hosts' clocks are not compared; the nodes compare for how long each has known a generation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.goodput.cause import TimeCause
from elasticd.records.account.time_spent import TimeSpent
from elasticd.records.ids import Generation, Life
from elasticd_agent.account.slot_history import SlotSpan, spent_between

__all__ = ["LONGEST_GAP_S", "KnownGenerations", "gap_of"]

LONGEST_GAP_S = 120.0
"""The longest gap that is filled. Agents write more often than this, so a longer gap has another
cause."""
_IN_STEP = frozenset({TimeCause.TRAIN.value, TimeCause.PAUSE.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGenerations:
    """The times of the generations that this node knows, by its own clock."""

    began_s: Mapping[Generation, float] = field(default_factory=dict)
    """When this node first saw each of the newest generations."""
    lasted_s: Mapping[Generation, float] = field(default_factory=dict)
    """How long each generation that is over lasted: until the next one was seen."""
    named: Mapping[Generation, frozenset[Life]] = field(default_factory=dict)
    """The agents that each generation names."""
    spans: tuple[SlotSpan, ...] = ()
    """What the slots of this node did, moment by moment."""


def gap_of(record: TimeSpent, life: Life, known: KnownGenerations) -> Mapping[str, float]:
    """Return slot-seconds by cause from the agent's last write to the end of its last world."""
    gap_s = min(LONGEST_GAP_S, _gap_s(record, life, known))
    if gap_s <= 0.0:
        return {}
    held = record.held or {TimeCause.TRAIN.value: record.slots}
    stepped = _in_step(record, gap_s, life, known)
    found: dict[str, float] = {}
    for cause, slots in held.items():
        parts = stepped if cause in _IN_STEP else {cause: gap_s}
        rest_s = gap_s - sum(parts.values())
        for name, seconds in (*parts.items(), (TimeCause.UNEXPLAINED.value, rest_s)):
            if seconds > 0.0:
                found[name] = found.get(name, 0.0) + seconds * slots
    return found


def _gap_s(record: TimeSpent, life: Life, known: KnownGenerations) -> float:
    lasted_s = known.lasted_s.get(record.generation)
    if record.is_last or record.is_concluded or lasted_s is None:
        return 0.0
    gap_s = lasted_s - record.generation_s
    later = Generation(record.generation + 1)
    # It was in later ones too, and came to no commit, or to no write.
    while life in known.named.get(later, ()) and later in known.lasted_s:
        gap_s += known.lasted_s[later]
        later = Generation(later + 1)
    return gap_s


def _in_step(
    record: TimeSpent, gap_s: float, life: Life, known: KnownGenerations
) -> Mapping[str, float]:
    """Return what a slot did that trained in the record's generation, for as long as this node
    knows.
    """
    began_s = known.began_s.get(record.generation)
    if began_s is None or life not in known.named.get(record.generation, ()):
        return {}
    since_s = began_s + record.generation_s
    spent = spent_between(known.spans, since_s, since_s + gap_s)
    return {cause.value: seconds for cause, seconds in spent.items()}
