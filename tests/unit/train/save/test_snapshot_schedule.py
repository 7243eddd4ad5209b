"""All ranks take a snapshot after the same step, by one clock, however far apart they are."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore  # type: ignore[attr-defined]

from elasticd.records.checkpoint import Every
from elasticd.train.interrupt import Interrupted
from elasticd.train.save import snapshot_schedule
from elasticd.train.save.interval_tuner import IntervalTuner
from elasticd.train.save.snapshot_schedule import LOOK_LIMIT, SnapshotSchedule, next_look
from tests.fixtures.patience import patience_s

SIZE = 3
SECONDS = st.floats(0.0, 1e6)


class Clock:
    """Read by rank 0, moved by the test."""

    def __init__(self) -> None:
        self.now_s = 100.0


class FakeStore:
    """A store of one process that remembers what is in it, and refuses to block."""

    def __init__(self) -> None:
        self._store = HashStore()
        self.keys: set[str] = set()
        self.set_keys: list[str] = []
        self.was_set = threading.Event()

    def set(self, key: str, value: str, /) -> None:
        self._store.set(key, value)
        self.keys.add(key)
        self.set_keys.append(key)
        self.was_set.set()

    def get(self, key: str, /) -> bytes:
        assert key in self.keys, f"{key} is gone, and whoever reads it would wait for ever"
        value: bytes = self._store.get(key)
        return value

    def check(self, keys: list[str], /) -> bool:
        return all(key in self.keys for key in keys)

    def add(self, key: str, amount: int, /) -> int:
        self.keys.add(key)
        return int(self._store.add(key, amount))

    def delete_key(self, key: str, /) -> bool:
        self.keys.discard(key)
        return bool(self._store.delete_key(key))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Stands still unless a test moves it."""
    clock = Clock()
    monkeypatch.setattr(snapshot_schedule, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    return clock


def ranks(
    store: FakeStore,
    every: Every,
    *,
    size: int = SIZE,
    step: int = 0,
    is_free: list[bool] | None = None,
    is_over: threading.Event | None = None,
) -> list[SnapshotSchedule]:
    """One schedule for each rank; `is_free` is used up, and then always True."""
    answers = is_free if is_free is not None else []

    def asked(rank: int) -> bool:
        assert rank == 0, "only rank 0 asks its keeper"
        return answers.pop(0) if answers else True

    return [
        SnapshotSchedule(
            store,
            every,
            rank=rank,
            size=size,
            step=step,
            saved_at_s=100.0,
            is_free=lambda rank=rank: asked(rank),  # type: ignore[misc]
            is_stale=is_over.is_set if is_over is not None else lambda: False,
        )
        for rank in range(size)
    ]


def due_steps(every: Every, clock: Clock, step_s: float, steps: int, **given: object) -> list[int]:
    """Let rank 0 be first at each step, and the others follow; returns when all take one."""
    found = []
    all_ranks = ranks(FakeStore(), every, **given)  # type: ignore[arg-type]
    for step in range(1, steps + 1):
        clock.now_s += step_s
        said = {each.is_due(step) for each in all_ranks}
        assert len(said) == 1, f"ranks differ at step {step}"
        found += [step] if said == {True} else []
    return found


@given(st.integers(1, 1000), st.integers(0, 10**9), SECONDS, SECONDS)
def test_next_look_of_steps_is_the_next_multiple(
    every: int, step: int, left_s: float, step_s: float
) -> None:
    """Whatever the clock says: the one after this step, none is skipped."""
    found = next_look(Every(steps=every), step, left_s, step_s)
    assert found % every == 0
    assert step < found <= step + every


@given(st.integers(0, 10**9), SECONDS, SECONDS)
def test_next_look_is_ahead_and_not_behind_what_is_due(
    step: int, left_s: float, step_s: float
) -> None:
    """With steps as long as so far it is never later than the first step that ends when the time
    is over, and never further than the limit."""
    found = next_look(Every(seconds=1.0), step, left_s, step_s)
    assert step < found <= step + LOOK_LIMIT
    assert found == step + 1 or (found - step) * step_s <= left_s * (1 + 1e-9)


@given(st.floats(0.001, 10.0), st.floats(0.001, 1e4))
def test_looks_between_two_snapshots_are_few(step_s: float, seconds: float) -> None:
    """Half of what is left each time: some ten of them for a minute, not one for each step."""
    step, looks = 0, 0
    while step * step_s < seconds:
        step = next_look(Every(seconds=seconds), step, seconds - step * step_s, step_s)
        looks += 1
    assert looks <= 3 + max(0, int(seconds / step_s)).bit_length() + seconds / step_s / LOOK_LIMIT
    assert (step - 1) * step_s <= seconds + step_s


def test_snapshots_are_a_time_apart(clock: Clock) -> None:
    """The first step that ends when the time is over."""
    assert due_steps(Every(seconds=10.0), clock, 1.0, 40) == [10, 20, 30, 40]


def test_steps_that_get_longer_are_looked_at_in_time(clock: Clock) -> None:
    """Half of the time that is left is skipped and not more."""
    every = Every(seconds=60.0)
    (alone,) = ranks(FakeStore(), every, size=1)
    took, step = 0.1, 0
    while True:
        step += 1
        took = 0.1 if step < 200 else 0.2
        clock.now_s += took
        if alone.is_due(step):
            break
    assert 160.0 <= clock.now_s <= 160.0 + 2 * took


def test_pace_is_that_of_the_last_steps(clock: Clock) -> None:
    """Not of the whole run: after a fast beginning, looks would come far too late for ever."""
    (alone,) = ranks(FakeStore(), Every(seconds=60.0), size=1)
    due_s = []
    for step in range(1, 1300):
        clock.now_s += 0.1 if step <= 600 else 10.0
        due_s += [clock.now_s] if alone.is_due(step) else []
    apart = [after - before for before, after in pairwise(due_s)]
    assert len(apart) > 10 and max(apart[1:]) < 70.1


def test_snapshots_are_a_number_of_steps_apart(clock: Clock) -> None:
    """At multiples, so that it does not matter where a generation began."""
    assert due_steps(Every(steps=4), clock, 0.0, 13) == [4, 8, 12]
    assert due_steps(Every(steps=4), clock, 0.0, 13, step=3) == [4, 8, 12]


def test_busy_keeper_is_asked_again_at_the_next_step(clock: Clock) -> None:
    """One that is late is taken as soon as there is room, by all ranks."""
    is_free = [False, False, True]
    assert due_steps(Every(seconds=10.0), clock, 1.0, 21, is_free=is_free) == [12]
    assert is_free == []


def test_busy_keeper_costs_one_turn_of_steps(clock: Clock) -> None:
    """Who asked for multiples gets multiples."""
    assert due_steps(Every(steps=5), clock, 1.0, 15, is_free=[False]) == [10, 15]


def test_ranks_decide_alike_without_a_clock_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in its own thread; only rank 0's clock may be read after the start."""
    owner = threading.current_thread()
    now_s = 100.0

    def monotonic() -> float:
        thread = threading.current_thread()
        assert thread is owner or thread.name == "rank-0", "a clock of another rank was read"
        return now_s

    monkeypatch.setattr(snapshot_schedule, "time", SimpleNamespace(monotonic=monotonic))
    all_ranks = ranks(FakeStore(), Every(seconds=20.0))
    found: list[list[int]] = [[] for _ in all_ranks]

    def train(rank: int) -> None:
        nonlocal now_s
        for step in range(1, 200):
            if rank == 0:
                now_s += 1.0
            found[rank] += [step] if all_ranks[rank].is_due(step) else []

    threads = [
        threading.Thread(target=train, args=(rank,), name=f"rank-{rank}") for rank in range(SIZE)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience_s(30.0))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 9


def test_rank_that_is_ahead_waits_for_the_decision(clock: Clock) -> None:
    """It cannot know what rank 0 is going to say."""
    store = FakeStore()
    first, second = ranks(store, Every(steps=2), size=2)
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(second.is_due, 2)
        assert not ahead.done()
        assert first.is_due(2)
        assert ahead.result(patience_s(30.0))
    assert not second.is_due(3)


def test_end_of_a_generation_interrupts_who_waits(clock: Clock) -> None:
    """Rank 0 is lost, say."""
    is_over = threading.Event()
    _, second = ranks(FakeStore(), Every(steps=2), size=2, is_over=is_over)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.is_due, 2)
        is_over.set()
        with pytest.raises(Interrupted):
            waiting.result(patience_s(30.0))


def test_keys_are_taken_away_when_all_have_read_them(clock: Clock) -> None:
    """A run of a million snapshots leaves a handful of them in the store."""
    store = FakeStore()
    all_ranks = ranks(store, Every(steps=1))
    for step in range(1, 101):
        for each in all_ranks:
            assert each.is_due(step)
    assert len(store.keys) <= 4


@pytest.mark.parametrize("lag", [1, 2, 5, 50])
def test_rank_that_is_far_behind_still_finds_its_keys(clock: Clock, lag: int) -> None:
    """Ranks that do not sum gradients in each step are not bound to each other."""
    store = FakeStore()
    first, second, third = ranks(store, Every(steps=1))
    for step in range(1, lag + 1):
        assert first.is_due(step) and second.is_due(step)
    for step in range(1, lag + 1):
        assert third.is_due(step)
    for step in range(lag + 1, lag + 4):
        assert first.is_due(step) and second.is_due(step) and third.is_due(step)
    assert len(store.keys) <= 4, "and they are taken away when it has caught up"


def test_step_that_does_not_grow_is_not_looked_at_twice(clock: Clock) -> None:
    """The end of an epoch commits the same step again; on all ranks alike."""
    store = FakeStore()
    all_ranks = ranks(store, Every(steps=2))
    for step in (1, 2, 2, 3, 4, 4):
        said = [each.is_due(step) for each in all_ranks]
        assert len(set(said)) == 1
    assert store.set_keys == ["elasticd/save/2", "elasticd/save/4"]


def test_step_between_two_looks_asks_nobody(clock: Clock) -> None:
    """It costs a comparison."""
    store = FakeStore()
    all_ranks = ranks(store, Every(steps=1000))
    for step in range(1, 1000):
        assert not any(each.is_due(step) for each in all_ranks)
    assert not store.keys


# --- of each step, in memory --------------------------------------------------------------------


def paced(
    store: FakeStore,
    whole: list[bool],
    free: list[bool],
    tuners: dict[int, IntervalTuner] | None = None,
) -> Any:
    """Three ranks; `whole` is what each says of the snapshot before, `free` what rank 0 says."""
    return [
        SnapshotSchedule(
            store, Every(seconds=60.0), rank=rank, size=SIZE, step=0, saved_at_s=-inf,
            is_free=lambda: free[0], is_stale=lambda: False,
            tuner=(tuners or {}).get(rank) or IntervalTuner(),
            is_replicated=partial(whole.__getitem__, rank),
        )
        for rank in range(SIZE)
    ]  # fmt: skip


class Steps:
    """Ends one step after the other on all ranks, and returns whether a snapshot is due then."""

    def __init__(self, all_ranks: Any, clock: Clock) -> None:
        self._ranks, self._clock, self.step = all_ranks, clock, 0

    def end(self) -> tuple[bool, bool]:
        """Whether one is due, and uploaded; all ranks say the same."""
        self.step += 1
        self._clock.now_s += 0.1

        def ask(each: SnapshotSchedule) -> tuple[bool, bool]:
            return each.is_due(self.step), each.is_saved

        with ThreadPoolExecutor(SIZE) as pool:
            said = set(pool.map(ask, self._ranks))
        assert len(said) == 1
        return said.pop()

    def due(self) -> None:
        """Go on until one is due."""
        for _ in range(100):
            if self.end()[0]:
                return
        raise AssertionError("none was due in a hundred steps")


def test_next_snapshot_in_memory_waits_until_all_hold_the_one_before(clock: Clock) -> None:
    """Whichever rank says no: what is whole is not written over before another is."""
    whole, free = [True] * SIZE, [True]
    store = FakeStore()
    steps = Steps(paced(store, whole, free), clock)
    steps.due()
    for late in range(SIZE):
        whole[late] = False
        assert not any(steps.end()[0] for _ in range(5))
        whole[late] = True
        steps.due()
    assert len(store.keys) <= 4


def test_slow_storage_does_not_hold_up_snapshots_in_memory(clock: Clock) -> None:
    """The first one is uploaded, the next when its time has come and the one before is durable."""
    whole, free = [True] * SIZE, [True]
    steps = Steps(paced(FakeStore(), whole, free), clock)

    def uploads() -> list[bool]:
        """Of each snapshot of the next fifty steps, whether it is uploaded."""
        found = [steps.end() for _ in range(50)]
        return [is_saved for is_due, is_saved in found if is_due]

    first = uploads()
    assert first[0] and not any(first[1:]) and len(first) > 5
    free[0] = False
    clock.now_s += 61.0
    meanwhile = uploads()
    assert len(meanwhile) > 5 and not any(meanwhile)
    free[0] = True
    assert sum(uploads()) == 1


def test_all_ranks_know_the_interval_that_rank_0_found(clock: Clock) -> None:
    """Whoever is rank 0 in the next generation goes on from it, if this one is gone by then."""
    tuners = {rank: IntervalTuner() for rank in range(SIZE)}
    whole = [True] * SIZE
    steps = Steps(paced(FakeStore(), whole, [True], tuners), clock)
    for _ in range(40):
        steps.due()
        whole[2] = False
        for _ in range(3):
            assert not steps.end()[0]
        whole[2] = True
    assert [tuner.interval for tuner in tuners.values()] == [4] * SIZE
    assert IntervalTuner(tuners[1]).interval == 2
