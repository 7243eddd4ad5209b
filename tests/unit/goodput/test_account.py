"""The account of a node's slots: it adds up, and what is charged stays."""

import math

from hypothesis import given
from hypothesis import strategies as st

from elasticd.goodput.account import Account
from elasticd.goodput.cause import WHOLE, TimeCause
from elasticd.records.ids import Slot

A, B = Slot(0), Slot(1)

_times = st.floats(0.0, 1000.0)
_causes = st.sampled_from(list(TimeCause))
_parts = st.lists(st.tuples(_causes, st.floats(-10.0, 500.0)), max_size=4)
_slots = st.sampled_from([A, B])
_facts = st.one_of(
    st.tuples(st.just("hold"), _slots, _times, _causes, _parts),
    st.tuples(st.just("charge"), _slots, _times, _causes, _parts),
    st.tuples(st.just("release"), _slots, _times, _causes, _parts),
    st.tuples(st.just("relabel"), _slots, _times, _causes, _parts),
)


def applied(account: Account, fact: tuple[object, ...]) -> Account:
    kind, slot, at_s, cause, parts = fact
    if kind == "hold":
        return account.hold(slot, cause, now_s=at_s, parts=parts)  # type: ignore[arg-type]
    if kind == "charge":
        return account.charge(slot, until_s=at_s, parts=parts, rest=cause)  # type: ignore[arg-type]
    if kind == "relabel":
        return account.relabel(slot, cause)  # type: ignore[arg-type]
    return account.release(slot, now_s=at_s, parts=parts)  # type: ignore[arg-type]


@given(st.lists(_facts, max_size=30))
def test_the_causes_add_up_to_the_time_for_which_slots_were_held(
    facts: list[tuple[object, ...]],
) -> None:
    """Whatever the order, also with times that go back and parts that are more than the whole."""
    account = Account()
    begun: dict[object, float] = {}
    newest: dict[object, float] = {}
    held_s = 0.0
    for fact in facts:
        kind, slot, at_s = fact[0], fact[1], float(fact[2])  # type: ignore[arg-type]
        is_news = slot not in begun or kind != "hold" or account.slots[slot].cause is not fact[3]  # type: ignore[index]
        account = applied(account, fact)
        if slot not in begun:
            if kind == "hold":
                begun[slot] = newest[slot] = at_s
            continue
        if is_news and kind != "relabel":
            newest[slot] = max(newest[slot], at_s)
        if kind == "release":
            held_s += newest.pop(slot) - begun.pop(slot)
    end_s = 2000.0
    held_s += sum(end_s - at_s for at_s in begun.values())
    assert math.isclose(sum(account.seconds(end_s).values()), held_s, abs_tol=1e-6)
    assert all(seconds >= 0.0 for seconds in account.seconds(end_s).values())


@given(st.lists(_facts, max_size=30))
def test_what_is_counted_never_falls(facts: list[tuple[object, ...]]) -> None:
    account, before, at_s = Account(), dict.fromkeys(TimeCause, 0.0), 0.0
    for fact in facts:
        kind, slot, later_s, cause, parts = fact
        at_s = max(at_s, float(later_s))  # type: ignore[arg-type]
        account = applied(account, (kind, slot, at_s, cause, parts))
        now = account.counted(at_s)
        for each in TimeCause:
            assert now.get(each, 0.0) >= before[each] - 1e-6
            before[each] = max(before[each], now.get(each, 0.0))


def test_the_time_before_a_fault_was_noticed_is_no_training() -> None:
    account = Account().hold(A, TimeCause.TRAIN, now_s=10.0)
    account = account.charge(A, until_s=14.0)  # A commit.
    fault = ((TimeCause.REDONE, 0.5), (TimeCause.NOTICE, math.inf))
    account = account.hold(A, TimeCause.RECOVER, now_s=20.0, parts=fault)
    assert account.seconds(21.0) == {
        TimeCause.TRAIN: 4.0,
        TimeCause.REDONE: 0.5,
        TimeCause.NOTICE: 5.5,
        TimeCause.RECOVER: 1.0,
    }


def test_training_counts_with_its_commit_and_not_before() -> None:
    account = Account().hold(A, TimeCause.TRAIN, now_s=0.0)
    assert account.counted(9.0) == {}
    assert account.seconds(9.0) == {TimeCause.TRAIN: 9.0}
    assert account.charge(A, until_s=8.0).counted(9.0) == {TimeCause.TRAIN: 8.0}


def test_a_pause_counts_as_it_goes_by_and_is_nothing_else_later() -> None:
    for cause in WHOLE:
        account = Account().hold(A, cause, now_s=0.0)
        assert account.counted(9.0) == {cause: 9.0}
        later = account.hold(A, TimeCause.RECOVER, now_s=9.0, parts=((TimeCause.NOTICE, 5.0),))
        assert later.counted(9.0) == {cause: 9.0}


def test_what_was_measured_is_not_more_than_the_time_that_it_is_a_part_of() -> None:
    account = Account().hold(A, TimeCause.TRAIN, now_s=0.0)
    parts = ((TimeCause.DATA, 3.0), (TimeCause.SAVE, 30.0), (TimeCause.REDONE, 1.0))
    account = account.charge(A, until_s=5.0, parts=parts)
    assert account.seconds(5.0) == {TimeCause.DATA: 3.0, TimeCause.SAVE: 2.0}


def test_the_same_cause_again_is_no_news() -> None:
    account = Account().hold(A, TimeCause.TRAIN, now_s=0.0)
    assert account.hold(A, TimeCause.TRAIN, now_s=5.0) is account


def test_a_slot_that_is_given_back_costs_nothing_more() -> None:
    account = Account().hold(A, TimeCause.WAIT, now_s=0.0).hold(B, TimeCause.SPARE, now_s=0.0)
    account = account.release(A, now_s=2.0)
    assert account.seconds(10.0) == {TimeCause.WAIT: 2.0, TimeCause.SPARE: 10.0}
    assert account.release(A, now_s=3.0) is account
