"""How the slots of this node spent each moment of the last minutes.

The account has sums only. If another agent dies, a node must know how a slot of the same world
spent the time between that agent's last record and the end of the generation: all ranks of a world
make each step together, so the dead agent's slots did the same as a slot here.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from elasticd.goodput.account import Account
from elasticd.goodput.cause import TimeCause
from elasticd.records.ids import Slot

__all__ = ["SlotHistory", "SlotSpan", "spent_between"]

KEPT_S = 150.0
"""How much history is kept: longer than the age of any record from which an account is inferred."""
MOST_SPANS = 4096
MERGED_S = 1.0
"""Spans shorter than this are merged. Heartbeats charge 0.2 s each; within a second the order does
not matter."""
_STEPS = (TimeCause.TRAIN, TimeCause.DATA, TimeCause.SAVE)
_ORDER = (*_STEPS, TimeCause.REDONE, TimeCause.NOTICE)
"""The order of causes within one span: first the steps, then lost work, then time before the fault
was known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSpan:
    """The time of a slot that was charged at once."""

    slot: Slot
    since_s: float
    seconds: Mapping[TimeCause, float]
    """Seconds by cause, in the order in which they passed; they add up to the whole span."""

    @property
    def until_s(self) -> float:
        return self.since_s + sum(self.seconds.values())


class SlotHistory:
    """Keep the history of one job's slots. All methods run on the owner's thread."""

    def __init__(self) -> None:
        self._spans: deque[SlotSpan] = deque(maxlen=MOST_SPANS)
        self._newest: dict[Slot, SlotSpan] = {}
        """The newest span of each slot, into which the next one may be merged."""

    @property
    def spans(self) -> tuple[SlotSpan, ...]:
        """Return all spans that are known now."""
        return (*self._spans, *self._newest.values())

    def take(self, before: Account, after: Account) -> None:
        """Take note of what one change of the account charged; it is always time of one slot."""
        seconds = {
            cause: after.charged[cause] - before.charged.get(cause, 0.0)
            for cause in sorted(after.charged, key=_place)
            if after.charged[cause] > before.charged.get(cause, 0.0)
        }
        slot = next((each for each in before.slots if _is_moved(each, before, after)), None)
        if not seconds or slot is None:
            return
        self._add(SlotSpan(slot=slot, since_s=before.slots[slot].since_s, seconds=seconds))

    def _add(self, span: SlotSpan) -> None:
        last = self._newest.get(span.slot)
        if last is not None and _is_merged(last, span):
            seconds = {
                cause: last.seconds.get(cause, 0.0) + span.seconds.get(cause, 0.0)
                for cause in _STEPS
                if cause in last.seconds or cause in span.seconds
            }
            self._newest[span.slot] = replace(last, seconds=seconds)
            return
        if last is not None:
            self._spans.append(last)
        self._newest[span.slot] = span
        while self._spans and self._spans[0].until_s < span.since_s - KEPT_S:
            self._spans.popleft()


def spent_between(
    spans: Sequence[SlotSpan], since_s: float, until_s: float
) -> Mapping[TimeCause, float]:
    """Return what a slot of the world spent this time on, as far as this node knows.

    It takes the slot that trained most of that time: a slot whose worker was lost meanwhile did not
    share what the others did.
    """
    by_slot: dict[Slot, dict[TimeCause, float]] = {}
    for span in spans:
        found = by_slot.setdefault(span.slot, {})
        at_s = span.since_s
        for cause, seconds in span.seconds.items():
            inside_s = min(at_s + seconds, until_s) - max(at_s, since_s)
            if inside_s > 0.0:
                found[cause] = found.get(cause, 0.0) + inside_s
            at_s += seconds
    return max(by_slot.values(), key=_stepped_s, default={})


def _stepped_s(seconds: Mapping[TimeCause, float]) -> tuple[float, float]:
    return sum(seconds.get(cause, 0.0) for cause in _STEPS), sum(seconds.values())


def _place(cause: TimeCause) -> int:
    return _ORDER.index(cause) if cause in _ORDER else len(_ORDER)


def _is_moved(slot: Slot, before: Account, after: Account) -> bool:
    held = after.slots.get(slot)
    return held is None or held.since_s != before.slots[slot].since_s


def _is_merged(last: SlotSpan, span: SlotSpan) -> bool:
    are_steps = last.seconds.keys() <= set(_STEPS) and span.seconds.keys() <= set(_STEPS)
    is_short = span.until_s - last.since_s <= MERGED_S
    return are_steps and is_short and abs(span.since_s - last.until_s) < 1e-6
