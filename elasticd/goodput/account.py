"""The seconds of a job's slots on one node, by cause.

Each slot is held for one cause since some time; later facts divide that time when it is charged. So
the account always adds up: the seconds of all causes together are exactly the time for which slots
were held, for any order of the facts, and even if a measurement was wrong.

Charged time is never changed. A commit charges time to `train`; the passing of time does not, since
open time may turn out to be time in which a fault was not known yet. Therefore `counted` can be a
counter, which must not fall.

Rejected: to add up the measurements of all parts. If two measure the same second, or none does, the
sum is 110 % or 90 % of a job's time, and nobody can find the wrong one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from elasticd.goodput.cause import WHOLE, TimeCause
from elasticd.records.ids import Slot

__all__ = ["Account", "SlotTime", "Parts"]

Parts = Iterable[tuple[TimeCause, float]]
"""The known parts of a time span, in the order of their priority: seconds by cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTime:
    """A slot, and the cause to which its time counts."""

    cause: TimeCause
    since_s: float
    """The time up to which all of the slot's time is charged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An immutable account: each method returns the account that follows.

    `now_s` is one agent's clock, in seconds. A time before the charged time counts as the end of
    the charged time.
    """

    charged: Mapping[TimeCause, float] = field(default_factory=dict)
    """The charged slot-seconds by cause; they only grow."""
    slots: Mapping[Slot, SlotTime] = field(default_factory=dict)

    def hold(self, slot: Slot, cause: TimeCause, *, now_s: float, parts: Parts = ()) -> "Account":
        """Count the slot's time to `cause` from now on, and charge the time before.

        `parts` give the causes of the time before, as far as their seconds reach; the rest counts
        to the cause for which the slot was held.
        """
        before = self.slots.get(slot)
        if before is not None and before.cause is cause:
            return self
        at_s = now_s if before is None else max(now_s, before.since_s)
        account = self.charge(slot, until_s=at_s, parts=parts)
        return replace(account, slots={**account.slots, slot: SlotTime(cause=cause, since_s=at_s)})

    def charge(
        self, slot: Slot, *, until_s: float, parts: Parts = (), rest: TimeCause | None = None
    ) -> "Account":
        """Divide the slot's time up to `until_s`: `parts` first, then `rest`.

        `rest` is by default the cause for which the slot is held. Time of a cause in `WHOLE` is not
        divided.
        """
        held = self.slots.get(slot)
        if held is None or until_s <= held.since_s:
            return self
        left_s = until_s - held.since_s
        charged = dict(self.charged)
        if held.cause not in WHOLE:
            for cause, seconds in parts:
                part_s = min(max(0.0, seconds), left_s)
                if part_s:
                    charged[cause] = charged.get(cause, 0.0) + part_s
                    left_s -= part_s
        cause = held.cause if rest is None or held.cause in WHOLE else rest
        if left_s > 0.0:
            charged[cause] = charged.get(cause, 0.0) + left_s
        slots = {**self.slots, slot: SlotTime(cause=held.cause, since_s=until_s)}
        return Account(charged=charged, slots=slots)

    def relabel(self, slot: Slot, cause: TimeCause) -> "Account":
        """Count all open time of the slot to `cause`, also the time until now; charge nothing.

        This is for time that will be divided when more is known. Time of a cause in `WHOLE` stays
        so.
        """
        held = self.slots.get(slot)
        if held is None or held.cause in WHOLE or cause in WHOLE:
            return self
        return replace(self, slots={**self.slots, slot: replace(held, cause=cause)})

    def release(self, slot: Slot, *, now_s: float, parts: Parts = ()) -> "Account":
        """Release the slot: from now on its time does not belong to this job."""
        if slot not in self.slots:
            return self
        account = self.charge(slot, until_s=now_s, parts=parts)
        slots = {other: held for other, held in account.slots.items() if other != slot}
        return replace(account, slots=slots)

    def seconds(self, now_s: float) -> Mapping[TimeCause, float]:
        """Return the slot-seconds of each cause up to now, from all facts that are known."""
        return self._with_open(now_s, frozenset(TimeCause))

    def counted(self, now_s: float) -> Mapping[TimeCause, float]:
        """Return the seconds that are final: they only grow, and lag by a step or a recovery."""
        return self._with_open(now_s, WHOLE)

    def _with_open(self, now_s: float, causes: frozenset[TimeCause]) -> Mapping[TimeCause, float]:
        found = dict(self.charged)
        for held in self.slots.values():
            if held.cause in causes and now_s > held.since_s:
                found[held.cause] = found.get(held.cause, 0.0) + now_s - held.since_s
        return found
