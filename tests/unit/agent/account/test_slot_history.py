"""What slots spent their time on, moment by moment, from what the account settles."""

import pytest

from elasticd.goodput.account import Account
from elasticd.goodput.cause import TimeCause
from elasticd.records.ids import Slot
from elasticd_agent.account.slot_history import KEPT_S, SlotHistory, spent_between

TRAIN, NOTICE, RECOVER = TimeCause.TRAIN, TimeCause.NOTICE, TimeCause.RECOVER
A, B = Slot(0), Slot(1)


class Kept:
    """An account whose changes are taken note of."""

    def __init__(self, *slots: Slot) -> None:
        self.history, self.account = SlotHistory(), Account()
        for slot in slots:
            self.account = self.account.hold(slot, TRAIN, now_s=0.0)

    def charge(self, slot: Slot, until_s: float, **parts: float) -> None:
        named = [(TimeCause(name), seconds) for name, seconds in parts.items()]
        after = self.account.charge(slot, until_s=until_s, parts=named)
        self.history.take(self.account, after)
        self.account = after

    def between(self, since_s: float, until_s: float) -> dict[TimeCause, float]:
        return dict(spent_between(self.history.spans, since_s, until_s))


def test_each_settlement_is_a_span_of_its_slot() -> None:
    kept = Kept(A)
    kept.charge(A, 4.0)
    kept.charge(A, 6.0, notice=2.0)
    assert kept.between(0.0, 6.0) == {TRAIN: 4.0, NOTICE: 2.0}
    assert kept.between(3.0, 5.0) == {TRAIN: 1.0, NOTICE: 1.0}
    assert kept.between(6.0, 9.0) == {}


def test_within_one_span_steps_come_before_what_was_lost() -> None:
    kept = Kept(A)
    kept.charge(A, 10.0, notice=2.0, redone=1.0)
    assert kept.between(0.0, 8.0) == {TRAIN: 7.0, TimeCause.REDONE: 1.0}


def test_the_slot_that_trained_the_most_is_the_witness() -> None:
    """The worker of the other one was lost at 2 s: it did not go through what the world did."""
    kept = Kept(A, B)
    kept.charge(A, 2.0)
    kept.charge(A, 10.0, recover=8.0)
    kept.charge(B, 9.0)
    kept.charge(B, 10.0, notice=1.0)
    assert kept.between(0.0, 10.0) == {TRAIN: 9.0, NOTICE: 1.0}


def test_a_released_slot_leaves_its_last_span() -> None:
    kept = Kept(A)
    after = kept.account.release(A, now_s=3.0)
    kept.history.take(kept.account, after)
    assert kept.between(0.0, 3.0) == {TRAIN: 3.0}


def test_heartbeats_are_merged_and_what_is_long_ago_is_forgotten() -> None:
    """Five a second for ten minutes: what stays is a span a second of the last minutes."""
    kept = Kept(A)
    for number in range(1, 3001):
        kept.charge(A, number / 5, data=0.01)
    assert len(kept.history.spans) <= KEPT_S + 3
    found = kept.between(590.0, 600.0)
    assert found == {TRAIN: pytest.approx(9.5), TimeCause.DATA: pytest.approx(0.5)}
