"""What agents write of their accounts: every second in exactly one record."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import Unavailable
from elasticd.goodput.cause import TimeCause
from elasticd.records.account.time_spent import JobProgress, TimeSpent
from elasticd.records.codec import decode, encode
from elasticd.records.ids import Generation, JobName, Life, NodeId, Slot
from elasticd.records.keys import Keys
from elasticd.store.api import KeyValue, Put, Txn, TxnResult
from elasticd.store.memory import MemoryStore
from elasticd_agent.account.gap import KnownGenerations
from elasticd_agent.account.record_writer import (
    CONCLUDED_KEPT,
    PROGRESS_BYTES,
    AccountReading,
    RecordWriter,
    fitted,
)
from elasticd_agent.account.slot_history import SlotSpan

KEYS, JOB, UID = Keys(), JobName("job"), "u1"
A, B = Life("aaaa"), Life("bbbb")


class Line(MemoryStore):
    """A store whose answers may get lost, or whose calls do not arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.loses_answer = self.is_away = False

    def commit(self, txn: Txn) -> TxnResult:
        if self.is_away:
            raise Unavailable("nobody answers")
        done = super().commit(txn)
        if self.loses_answer:
            raise Unavailable("no answer came")
        return done

    def get(self, key: str) -> KeyValue | None:
        if self.is_away:
            raise Unavailable("nobody answers")
        return super().get(key)


def reading(
    seconds: float, *, node: str = "a", is_first: bool = False, generation: int = 1, **more: object
) -> AccountReading:
    progress = JobProgress(uid=UID, generation=Generation(generation), wanted_s=2 * seconds)
    found = AccountReading(
        spent=TimeSpent(
            node=NodeId(node),
            uid=UID,
            seconds={"train": seconds},
            slots=2,
            generation=Generation(generation),
        ),
        progress=progress if is_first else None,
        present=frozenset({A, B}),
    )
    return replace(found, **more)  # type: ignore[arg-type]


def spent(store: MemoryStore, life: Life = A, node: str = "a") -> TimeSpent | None:
    item = store.get(KEYS.time_spent(JOB, NodeId(node), life))
    return decode(TimeSpent, item.value) if item is not None else None


def progress(store: MemoryStore) -> JobProgress:
    item = store.get(KEYS.progress(JOB))
    assert item is not None
    return decode(JobProgress, item.value)


def total(store: MemoryStore) -> float:
    """All training time that stands in the store."""
    records = [decode(TimeSpent, item.value) for item in store.list(KEYS.times_spent(JOB)).items]
    item = store.get(KEYS.progress(JOB))
    gone = decode(JobProgress, item.value).seconds if item is not None else {}
    return sum(r.seconds.get("train", 0.0) for r in records) + gone.get("train", 0.0)


def test_an_agent_writes_its_sums_over_and_over_into_one_record() -> None:
    store = Line()
    writer = RecordWriter(store, KEYS, JOB, A)
    writer.write(reading(5.0))
    writer.write(reading(20.0))
    found = spent(store)
    assert found is not None and found.seconds == {"train": 20.0}
    assert len(store.list(KEYS.times_spent(JOB)).items) == 1


def test_sums_of_an_agent_that_is_gone_are_taken_over_and_its_record_goes() -> None:
    store = Line()
    RecordWriter(store, KEYS, JOB, B).write(reading(30.0, node="b"))
    first = RecordWriter(store, KEYS, JOB, A)
    first.write(reading(10.0, is_first=True))
    assert spent(store, B, "b") is not None, "it is present"
    first.write(reading(15.0, is_first=True, generation=2, present=frozenset({A})))
    assert spent(store, B, "b") is None
    assert progress(store).seconds == {"train": 30.0}
    assert total(store) == 45.0


def test_record_of_a_newer_version_is_left_and_holds_up_no_other() -> None:
    """Else every write of rank 0 fails for as long as it stands there."""
    store = Line()
    newer = KEYS.time_spent(JOB, NodeId("aa"), Life("cccc"))
    store.commit(Txn(then=(Put(key=newer, value=b'{"kind":"TimeSpent","schema":"9.0"}'),)))
    RecordWriter(store, KEYS, JOB, B).write(reading(30.0, node="b"))
    first = RecordWriter(store, KEYS, JOB, A)
    first.write(reading(15.0, is_first=True, present=frozenset({A})))
    assert progress(store).seconds == {"train": 30.0}
    assert spent(store, B, "b") is None and store.get(newer) is not None


def test_an_agent_whose_sums_were_taken_over_goes_on_from_there() -> None:
    """It was thought to be gone, and is not: nothing is counted twice."""
    store = Line()
    other = RecordWriter(store, KEYS, JOB, B)
    other.write(reading(30.0, node="b"))
    first = RecordWriter(store, KEYS, JOB, A)
    first.write(reading(10.0, is_first=True, present=frozenset({A})))
    other.write(reading(36.0, node="b"))
    found = spent(store, B, "b")
    assert found is not None and found.seconds == {"train": 6.0}
    assert total(store) == 46.0


def test_an_agent_that_comes_back_after_long_goes_on_from_what_it_wrote() -> None:
    """The job had no other world meanwhile, so nobody has taken it over."""
    store = Line()
    RecordWriter(store, KEYS, JOB, A).write(reading(3_600.0))
    again = RecordWriter(store, KEYS, JOB, A)
    store.is_away = True
    with pytest.raises(Unavailable):
        again.write(reading(1.0))
    store.is_away = False
    again.write(reading(2.0))
    again.write(reading(5.0))
    assert total(store) == 3_605.0
    first = RecordWriter(store, KEYS, JOB, B)
    first.write(reading(1.0, node="b", is_first=True, present=frozenset({B})))
    again.write(reading(7.0))
    assert total(store) == 3_608.0


def test_an_earlier_job_of_this_name_gives_nothing_to_the_next_one() -> None:
    """The same agent served both."""
    store = Line()
    old = reading(30.0)
    RecordWriter(store, KEYS, JOB, A).write(replace(old, spent=replace(old.spent, uid="u0")))
    RecordWriter(store, KEYS, JOB, A).write(reading(2.0))
    assert total(store) == 2.0


def test_what_nobody_can_know_of_a_node_that_died_is_unexplained() -> None:
    """It wrote 4 s into a generation that stood for 9 s here: 5 s of two slots are missing."""
    store = Line()
    gone = reading(30.0, node="b")
    RecordWriter(store, KEYS, JOB, B).write(
        replace(gone, spent=replace(gone.spent, generation_s=4.0))
    )
    first = RecordWriter(store, KEYS, JOB, A)
    known = KnownGenerations(lasted_s={Generation(1): 9.0})
    later = reading(10.0, is_first=True, generation=2, present=frozenset({A}), known=known)
    first.write(later)
    assert progress(store).seconds == {"train": 30.0}
    found = spent(store, B, "b")
    assert found is not None and found.is_concluded
    assert found.seconds == {"unexplained": 10.0}


def after_death(store: MemoryStore, other: RecordWriter | None = None) -> AccountReading:
    """b wrote 30 s of training 4 s into generation 1, in which a trained 8 of the 9 s."""
    parts = {TimeCause.TRAIN: 8.0, TimeCause.NOTICE: 1.0}
    span = SlotSpan(slot=Slot(0), since_s=100.0, seconds=parts)
    known = KnownGenerations(
        began_s={Generation(1): 100.0},
        lasted_s={Generation(1): 9.0},
        named={Generation(1): frozenset({A, B})},
        spans=(span,),
    )
    gone = reading(30.0, node="b")
    spent = replace(gone.spent, generation_s=4.0, held={"train": 2})
    (other or RecordWriter(store, KEYS, JOB, B)).write(replace(gone, spent=spent))
    return reading(9.0, is_first=True, generation=2, present=frozenset({A}), known=known)


def test_what_a_node_that_died_did_is_concluded_from_what_others_did_meanwhile() -> None:
    store = Line()
    RecordWriter(store, KEYS, JOB, A).write(after_death(store))
    found = spent(store, B, "b")
    assert found is not None and found.is_concluded
    assert found.seconds == {"train": 8.0, "notice": 2.0}
    assert progress(store).seconds == {"train": 30.0}, "what it wrote itself is taken over"


def test_what_was_concluded_is_taken_over_when_its_agent_is_not_back() -> None:
    store = Line()
    first, after = RecordWriter(store, KEYS, JOB, A), after_death(store)
    first.write(after)
    kept = 2 + CONCLUDED_KEPT
    first.write(reading(12.0, is_first=True, generation=kept - 1, present=frozenset({A})))
    assert spent(store, B, "b") is not None, "it may be back yet"
    first.write(reading(15.0, is_first=True, generation=kept, present=frozenset({A})))
    assert spent(store, B, "b") is None
    assert progress(store).seconds == {"train": 38.0, "notice": 2.0}


def test_an_agent_that_is_back_puts_what_it_knows_in_the_place_of_what_was_concluded() -> None:
    """It had been stopped, and was thought to be dead: no second counts twice."""
    store = Line()
    other = RecordWriter(store, KEYS, JOB, B)
    RecordWriter(store, KEYS, JOB, A).write(after_death(store, other))
    other.write(reading(36.0, node="b", generation=3))
    found = spent(store, B, "b")
    assert found is not None and not found.is_concluded
    assert found.seconds == {"train": 6.0}
    other.write(reading(40.0, node="b", generation=3))
    found = spent(store, B, "b")
    assert found is not None and found.seconds == {"train": 10.0}


def test_an_agent_whose_lease_ran_out_after_the_change_is_looked_for_again() -> None:
    """In the generation that begins without it, its own record may stand for a while yet."""
    store = Line()
    after = after_death(store)
    first = RecordWriter(store, KEYS, JOB, A)
    first.write(replace(after, present=frozenset({A, B})))
    assert progress(store).seconds == {}
    first.write(after)
    assert progress(store).seconds == {"train": 30.0}


def test_of_a_node_that_left_in_order_nothing_is_missing() -> None:
    store = Line()
    gone = reading(30.0, node="b")
    RecordWriter(store, KEYS, JOB, B).write(replace(gone, spent=replace(gone.spent, is_last=True)))
    known = KnownGenerations(lasted_s={Generation(1): 9.0})
    later = reading(1.0, is_first=True, generation=2, present=frozenset({A}), known=known)
    RecordWriter(store, KEYS, JOB, A).write(later)
    assert progress(store).seconds == {"train": 30.0}


def test_the_time_that_was_wanted_goes_on_with_another_writer() -> None:
    """Between the last write and the change nobody wrote: 6 s of 4 slots, by the durations."""
    store = Line()
    before = reading(50.0, is_first=True)
    assert before.progress is not None
    before = replace(before, progress=replace(before.progress, generation_s=20.0))
    RecordWriter(store, KEYS, JOB, A).write(before)
    assert progress(store).wanted_s == 100.0
    ages_s = {Generation(1): 26.0, Generation(2): 0.0}
    after = reading(7.0, node="b", is_first=True, generation=2, ages_s=ages_s, wanted_slots=4)
    other = RecordWriter(store, KEYS, JOB, B)
    other.write(after)
    assert progress(store).wanted_s == 124.0
    assert after.progress is not None
    later = replace(after, progress=replace(after.progress, wanted_s=18.0))
    other.write(later)
    assert progress(store).wanted_s == 128.0


def test_the_records_of_another_job_of_this_name_are_not_ours() -> None:
    store = Line()
    old = reading(30.0, node="b", is_first=True)
    assert old.progress is not None
    old = replace(old, spent=replace(old.spent, uid="u0"), progress=replace(old.progress, uid="u0"))
    RecordWriter(store, KEYS, JOB, B).write(old)
    first = RecordWriter(store, KEYS, JOB, A)
    first.write(reading(1.0, is_first=True, generation=2, present=frozenset({A})))
    found = progress(store)
    assert (found.uid, found.seconds, found.wanted_s) == (UID, {}, 2.0)
    assert spent(store, B, "b") is None


@pytest.mark.parametrize("is_first", [False, True])
def test_a_lost_answer_counts_nothing_twice(is_first: bool) -> None:
    store = Line()
    writer = RecordWriter(store, KEYS, JOB, A)
    store.loses_answer = True
    with pytest.raises(Unavailable):
        writer.write(reading(5.0, is_first=is_first))
    store.loses_answer = False
    writer.write(reading(8.0, is_first=is_first))
    assert total(store) == 8.0


_moves = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "first", "first takes a", "first takes b"]),
        st.sampled_from(["", "", "", "away"]),
        st.floats(0.0, 10.0).map(lambda value: round(value, 2)),
    ),
    max_size=40,
)


@given(_moves)
def test_every_second_stands_in_one_record_whatever_fails(
    moves: list[tuple[str, str, float]],
) -> None:
    """Two agents count, a third takes over whom it likes; calls fail. At the end all write."""
    store = Line()
    lives = {"a": A, "b": B, "first": Life("ffff")}
    writers = {name: RecordWriter(store, KEYS, JOB, life) for name, life in lives.items()}
    counted = dict.fromkeys(lives, 0.0)
    generation = 1

    def write(name: str, without: str = "") -> None:
        nonlocal generation
        generation += 1
        present = frozenset(life for each, life in lives.items() if each != without)
        is_first = name == "first"
        now = reading(
            counted[name], node=name, is_first=is_first, generation=generation, present=present
        )
        writers[name].write(now)

    for what, fails, seconds in moves:
        name, _, without = what.partition(" takes ")
        counted[name] += seconds
        store.is_away = fails == "away"
        try:
            write(name, without)
        except Unavailable:
            continue
    store.is_away = False
    for name in lives:
        write(name)
    assert math.isclose(total(store), sum(counted.values()), abs_tol=0.02 * (len(moves) + 4))


def test_progress_is_never_more_than_a_kilobyte() -> None:
    """Of 10,000 names the first ones of the alphabet; a name that is too long is none."""
    scalars = {f"name-{number:05d}" * 3: 1 / 3 for number in range(10_000)}
    full = JobProgress(
        uid="u" * 36,
        seconds={str(number): 123456789.12 for number in range(14)},
        scalars={**scalars, "a" * 65: 1.0, "loss": 0.123456789},
    )
    found = fitted(full)
    assert len(encode(found)) <= PROGRESS_BYTES
    assert found.scalars and max(found.scalars.values()) == 0.333333
    assert fitted(replace(full, scalars={"loss": 0.123456789})).scalars == {"loss": 0.123457}
