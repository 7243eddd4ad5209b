"""Loader: exactly once at every world size, exact weights, resumption without a loop."""

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    random_split,
)

from elasticd.errors import CallError
from elasticd.train.data import loader_core
from elasticd.train.data.ledger import Ledger
from elasticd.train.data.loader import Loader, loader_core_of
from elasticd.train.data.state_loaders import Loaders
from elasticd.train.interrupt import Interrupted
from elasticd.train.introspection.time_spent import SecondsSpent
from elasticd.train.session.step_session import EpochProgress
from elasticd.train.state.state import State, core_of
from tests.unit.train.data.loader_case import Numbers, Watch, loader_of, world_of
from tests.unit.train.state import state_case

torch.set_num_threads(1)


def _one_epoch(size: int, length: int, batch_size: int, **options: Any) -> Counter[int]:
    loaders = world_of(Numbers(length), batch_size, size, **options)
    counts: Counter[int] = Counter()
    for batches in zip(*loaders, strict=True):
        for loader, batch in zip(loaders, batches, strict=True):
            counts.update(batch if loader.weight else [])
    return counts


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
    ("length", "batch_size"), [(1, 8), (7, 8), (64, 8), (65, 8), (67, 8), (100, 7), (4100, 64)]
)
def test_each_sample_of_an_epoch_counts_once_at_every_world_size(
    length: int, batch_size: int, shuffle: bool
) -> None:
    """Sizes that do not divide and tails smaller than the world included."""
    for size in (1, 2, 3, 5, 7):
        assert _one_epoch(size, length, batch_size, shuffle=shuffle) == Counter(range(length))


def test_the_global_batches_are_the_same_at_every_world_size() -> None:
    """Joined over ranks, each is the same list in the same order."""

    def global_batches(size: int) -> list[list[int]]:
        loaders = world_of(Numbers(101), 16, size, seed=3)
        return [
            [
                sample
                for loader, batch in zip(loaders, batches, strict=True)
                for sample in (batch if loader.weight else [])
            ]
            for batches in zip(*loaders, strict=True)
        ]

    whole = global_batches(1)
    assert [len(batch) for batch in whole] == [16] * 6 + [5]
    assert all(global_batches(size) == whole for size in (2, 3, 6, 16))


class _World(NamedTuple):
    """One generation: how large, and how it ends."""

    size: int
    batches_per_commit: int
    deliveries: int  # after so many the first rank is interrupted
    lag: int  # the last rank hears of it so many deliveries later
    is_torn: bool  # only the last rank gets to make its last commit


_WORLDS = st.builds(
    _World,
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(0, 8),
    st.integers(0, 2),
    st.booleans(),
)


@given(
    length=st.integers(1, 60),
    batch_size=st.integers(6, 12),
    shuffle=st.booleans(),
    worlds=st.lists(_WORLDS, max_size=8),
)
@settings(max_examples=120, deadline=None)
def test_each_sample_counts_once_however_the_world_changes(
    length: int, batch_size: int, shuffle: bool, worlds: list[_World]
) -> None:
    """Ranks are interrupted at different batches and placed anew in worlds of other sizes."""
    epochs = 2
    job = _Job(epochs, loader_of(Numbers(length), batch_size, shuffle=shuffle, seed=9))
    for world in [*worlds, _World(3, 1, 10**6, 0, False)]:
        loaders = [
            loader_of(Numbers(length), batch_size, shuffle=shuffle) for _ in range(world.size)
        ]
        for rank, loader in enumerate(loaders):
            loader.load_state_dict(json.loads(json.dumps(job.saved)))
            is_last = rank == world.size - 1
            watch = Watch(at=world.deliveries + (world.lag if is_last else 0))
            loader_core_of(loader).place(rank, world.size, watch)
        with contextlib.suppress(Interrupted):
            job.train(loaders, world)
    assert job.counts == Counter(dict.fromkeys(range(length), epochs))
    ledger = job.ledger
    assert (ledger.samples, ledger.repeated, ledger.skipped) == (epochs * length, 0, 0)
    assert (ledger.left_out, ledger.epochs, ledger.consumed) == (0, epochs, 0)


class _Job:
    """All ranks of a job in one process: `saved` is what heals, the last commit of any rank."""

    def __init__(self, epochs: int, loader: Loader) -> None:
        self.epochs = epochs
        self.saved = loader.state_dict()
        self.counts: Counter[int] = Counter()
        self.ledger = Ledger()
        self._uncommitted: list[int] = []

    def train(self, loaders: list[Loader], world: _World) -> None:
        self._uncommitted = []
        while loaders[0].epoch < self.epochs:
            iterators = [iter(loader) for loader in loaders]
            for number in itertools.count(1):
                batches = [next(iterator, None) for iterator in iterators]
                if batches[0] is None:
                    break
                for loader, batch in zip(loaders, batches, strict=True):
                    self._uncommitted += batch if loader.weight and batch else []
                if number % world.batches_per_commit == 0:
                    is_last = number >= world.deliveries - world.batches_per_commit
                    self._commit(loaders, is_torn=world.is_torn and is_last)
            following = loaders[0].epoch + 1
            spans = [loader_core_of(loader).end_epoch(following) for loader in loaders]
            self.ledger.take(spans[0])
            self._commit(loaders, is_torn=False)

    def _commit(self, loaders: list[Loader], *, is_torn: bool) -> None:
        spans = [
            loader_core_of(loader).commit() for loader in (loaders[-1:] if is_torn else loaders)
        ]
        assert all(s == spans[0] for s in spans)
        self.ledger.take(spans[-1])
        self.counts.update(self._uncommitted)
        self._uncommitted = []
        self.saved = loaders[-1].state_dict()
        if is_torn:
            raise Interrupted


def test_an_interrupted_delivery_does_not_count() -> None:
    """It was fetched, but the script never had it: it comes again."""
    loader = loader_of(Numbers(20), 4, shuffle=False)
    loader_core_of(loader).place(0, 1, Watch(at=1))
    iterator = iter(loader)
    assert next(iterator) == [0, 1, 2, 3]
    with pytest.raises(Interrupted):
        next(iterator)
    (span,) = loader_core_of(loader).commit()
    assert (span.start, span.stop) == (0, 4)
    loader_core_of(loader).place(0, 1, Watch())
    assert next(iter(loader)) == [4, 5, 6, 7]


def test_without_a_commit_a_new_loop_goes_on_and_a_new_world_goes_back() -> None:
    """Pending and committed positions, also at the end of an epoch."""
    loader = loader_of(Numbers(10), 4, shuffle=False)
    assert next(iter(loader)) == [0, 1, 2, 3]
    assert next(iter(loader)) == [4, 5, 6, 7]
    assert (loader.epoch, loader.consumed) == (0, 0)
    loader_core_of(loader).commit()
    assert loader_core_of(loader).commit() == ()
    assert list(loader) == [[8, 9]]
    assert next(iter(loader)) == [0, 1, 2, 3]  # of the next epoch
    assert (loader.epoch, loader.consumed) == (0, 8)
    loader_core_of(loader).place(0, 1, Watch())
    assert list(loader) == [[8, 9]]
    assert [(s.epoch, s.start, s.stop) for s in loader_core_of(loader).commit()] == [(0, 8, 10)]


def test_reading_on_after_a_break_drops_nothing_that_was_read_ahead() -> None:
    """The new loop takes over the stream of the old one: nothing is fetched twice."""
    dataset = Numbers(40)
    loader = loader_of(dataset, 4)
    seen: list[int] = []
    while len(seen) < 40:
        for batch in loader:
            seen += batch
            break
    assert dataset.fetched == seen


def test_an_iterator_ends_with_its_epoch_and_stays_ended() -> None:
    """Two loops at once share the position."""
    loader = loader_of(Numbers(8), 4, shuffle=False)
    one, other = iter(loader), iter(loader)
    assert [next(one), next(other)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert next(one, None) is None
    assert next(other, None) is None
    assert list(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert next(one, None) is None


def test_an_iterator_of_an_earlier_generation_is_refused() -> None:
    """It would read for a rank and a size that are over."""
    loader = loader_of(Numbers(8), 4)
    iterator = iter(loader)
    next(iterator)
    loader_core_of(loader).place(0, 2, Watch())
    with pytest.raises(CallError, match="before the world changed"):
        next(iterator)


def test_several_passes_make_one_commit_of_several_spans() -> None:
    """Each epoch by itself, adjacent batches joined."""
    loader = loader_of(Numbers(10), 4)
    list(loader)
    next(iter(loader))
    spans = loader_core_of(loader).commit()
    assert [(s.epoch, s.start, s.stop) for s in spans] == [(0, 0, 10), (1, 0, 4)]
    assert (loader.epoch, loader.consumed) == (1, 4)


def test_what_a_script_leaves_of_an_epoch_is_left_out_not_skipped() -> None:
    """By a break, by drop_last, and where it does not read for whole epochs."""
    ledger = Ledger()
    loader = loader_of(Numbers(10), 4)
    next(iter(loader))
    ledger.take(loader_core_of(loader).end_epoch(1) + loader_core_of(loader).commit())
    assert (ledger.samples, ledger.left_out) == (4, 6)
    ledger.take(loader_core_of(loader).end_epoch(3) + loader_core_of(loader).commit())
    assert (ledger.samples, ledger.left_out, loader.epoch) == (4, 26, 3)
    dropping = loader_of(Numbers(10), 4, drop_last=True)
    dropping.load_state_dict(loader.state_dict())
    assert len(list(dropping)) == len(dropping) == 2
    iter(dropping)  # The epoch ends where the next one begins.
    ledger.take(loader_core_of(dropping).commit())
    assert (ledger.samples, ledger.left_out, ledger.skipped, ledger.repeated) == (12, 28, 0, 0)
    assert (dropping.epoch, dropping.consumed) == (4, 0)


def test_the_end_of_an_epoch_never_goes_back() -> None:
    """A loader of several passes per epoch of the state is ahead; nothing is counted twice."""
    loader = loader_of(Numbers(10), 4)
    list(loader)
    list(loader)
    assert len(loader_core_of(loader).end_epoch(1)) == 2
    loader_core_of(loader).commit()
    assert (loader.epoch, loader.consumed) == (2, 0)


def test_lengths_are_those_of_the_global_batches() -> None:
    """Before and after the world changed."""
    loader = loader_of(Numbers(10), 4)
    assert len(loader) == 3 == len(list(loader))
    loader_core_of(loader).place(1, 4, Watch())
    assert len(loader) == 3 == len(list(loader))
    assert len(loader_of(Numbers(10), 4, drop_last=True)) == 2
    assert list(loader_of(Numbers(0), 4)) == []


def test_a_later_epoch_and_another_seed_have_another_order() -> None:
    """And the same seed the same one."""

    def epochs(seed: int) -> list[list[int]]:
        loader = loader_of(Numbers(50), 10, seed=seed)
        return [[i for batch in loader for i in batch] for _ in range(2)]

    assert epochs(1) == epochs(1)
    assert len({tuple(order) for order in epochs(1) + epochs(2)}) == 4


def test_the_state_is_plain_and_positions_are_in_samples() -> None:
    """So that the batch size may change, also to one that does not divide the position."""
    loader = loader_of(Numbers(50), 10, seed=4)
    first = next(iter(loader))
    loader_core_of(loader).commit()
    state = json.loads(json.dumps(loader.state_dict()))
    assert state == {
        "epoch": 0,
        "consumed": 10,
        "length": 50,
        "batch_size": 10,
        "seed": 4,
        "shuffle": True,
        "drop_last": False,
        "selection": "",
    }
    other = loader_of(Numbers(50), 7, seed=5)  # the order is the state's
    other.load_state_dict(state)
    rest = list(other)
    assert [len(batch) for batch in rest] == [7] * 5 + [5]
    assert sorted(first + [i for batch in rest for i in batch]) == list(range(50))


def test_resumption_at_step_ten_million_fetches_one_batch() -> None:
    """No loop over what was read before, no list of indices: 5 * 10^9 samples are consumed."""
    dataset = Numbers(10**12)
    loader = loader_of(dataset, 512, seed=1)
    state = loader.state_dict() | {"consumed": 512 * 10**7}
    loader.load_state_dict(state)
    loader_core_of(loader).place(3, 4, Watch())
    batch = next(iter(loader))
    assert len(batch) == len(set(batch)) == 128 == len(dataset.fetched)
    fresh = loader_of(Numbers(10**12), 512, seed=1)
    fresh.load_state_dict(state)
    assert next(iter(fresh))[384:] == batch


def test_default_collation_gives_tensors() -> None:
    """As from torch's DataLoader."""
    xs = torch.arange(12.0).reshape(6, 2)
    loader = Loader(torch.utils.data.TensorDataset(xs, torch.arange(6)), 4, shuffle=False)
    x, y = next(iter(loader))
    assert torch.equal(x, xs[:4]) and y.tolist() == [0, 1, 2, 3]


class _Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class _Endless(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


def test_datasets_that_cannot_be_resumed_are_refused() -> None:
    """In one sentence that says what to give."""
    datasets: list[Any] = [_Stream(), _Endless(), DataLoader([1, 2, 3]), 5]  # type: ignore[arg-type]
    for dataset in datasets:
        with pytest.raises(CallError, match="give a map-style one, with __len__ and __getitem__"):
            loader_of(dataset, 4)


def test_arguments_that_make_no_sense_are_refused() -> None:
    """When the loader is made, not in the first step."""
    numbers = Numbers(8)
    for size in (0, -4, 2.5, None, True):
        with pytest.raises(CallError, match="batch_size is"):
            Loader(numbers, size)  # type: ignore[arg-type]
    with pytest.raises(CallError, match="takes no sampler"):
        Loader(numbers, 4, sampler=SequentialSampler(numbers))  # type: ignore[arg-type]
    with pytest.raises(CallError, match="takes no batch_sampler"):
        Loader(numbers, 4, batch_sampler=[[1]])  # type: ignore[arg-type]
    with pytest.raises(CallError, match="takes no generator"):
        Loader(numbers, 4, generator=torch.Generator())  # type: ignore[arg-type]
    with pytest.raises(CallError, match="prefetch_factor"):
        Loader(numbers, 4, prefetch_factor=2)


def test_a_batch_smaller_than_the_world_is_refused() -> None:
    """With both numbers: each full batch would leave workers without samples."""
    with pytest.raises(CallError, match=r"4 samples are too few for 5 workers.*at least 5"):
        loader_core_of(loader_of(Numbers(8), 4)).place(0, 5, Watch())
    loader_core_of(loader_of(Numbers(8), 4)).place(0, 4, Watch())


def test_a_dataset_whose_length_changed_is_refused() -> None:
    """When it is placed, and when a state is loaded."""
    dataset = Numbers(100)
    loader = loader_of(dataset, 4)
    dataset.length = 90
    with pytest.raises(CallError, match="90 samples, but had 100"):
        loader_core_of(loader).place(0, 1, Watch())
    with pytest.raises(CallError, match="80 samples, but had 100"):
        loader_of(Numbers(80), 4).load_state_dict(loader.state_dict())


def test_a_damaged_state_is_refused() -> None:
    """Rather than read from nowhere."""
    loader = loader_of(Numbers(100), 4)
    good = loader.state_dict()
    for bad in ({"consumed": 101}, {"consumed": -1}, {"epoch": -1}):
        with pytest.raises(CallError, match="damaged"):
            loader.load_state_dict(good | bad)
    for worse in ({"seed": "x"}, {"seed": None}):
        with pytest.raises(CallError, match="state of a Loader"):
            loader.load_state_dict(good | worse)
    with pytest.raises(CallError, match="state of a Loader"):
        loader.load_state_dict({})


def test_world_that_outgrows_the_batch_goes_on() -> None:
    """The ranks that are too many repeat a sample with weight 0; all others' are counted once."""
    first = loader_of(Numbers(40), 4)
    loader_core_of(first).place(0, 1, Watch())
    next(iter(first))
    loader_core_of(first).commit()
    loaders = [loader_of(Numbers(40), 4) for _ in range(6)]
    for rank, loader in enumerate(loaders):
        loader.load_state_dict(first.state_dict())
        loader_core_of(loader).place(rank, 6, Watch())
    shares = [next(iter(loader)) for loader in loaders]
    weights = [loader.weight for loader in loaders]
    assert sorted(weights)[:2] == [0.0, 0.0]
    counted = [x for share, weight in zip(shares, weights, strict=True) if weight for x in share]
    assert len(set(map(int, counted))) == 4


@pytest.mark.parametrize(("drop_last", "samples"), [(False, 65), (True, 64)])
def test_state_says_how_far_an_epoch_is_and_how_many_there_are(
    drop_last: bool, samples: int
) -> None:
    """From that the end of a job is estimated; a tail that is dropped is not waited for."""
    loaders = Loaders([])
    assert loaders.epoch_progress == EpochProgress()
    loader = Loader(Numbers(65), batch_size=8, drop_last=drop_last)
    loaders.add("data", loader)
    loaders.expect(3, 10, 3)
    assert loaders.epoch_progress == EpochProgress(0, samples, 3, steps=10)
    next(iter(loader))
    loaders.commit(None)
    assert loaders.epoch_progress == EpochProgress(8, samples, 3, samples=8, steps=10)


def test_the_time_in_a_loader_is_measured_for_whoever_watches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch that could not be fetched is no time of a step: what comes of it is a failure."""
    times = iter([10.0, 12.5, 20.0, 20.25, 30.0])
    monkeypatch.setattr(loader_core, "monotonic", lambda: next(times))
    watch = Watch()
    watch.spent = SecondsSpent()
    loader = loader_of(Numbers(20), 10)
    loader_core_of(loader).place(0, 1, watch)
    batches = iter(loader)
    next(batches), next(batches)
    assert watch.spent.data_s == 2.75
    assert next(batches, None) is None, "the end of an epoch reads no clock"


def test_scaled_loss_is_the_loss_times_the_weight_and_itself_where_that_is_1() -> None:
    """Whole batches of two ranks weigh 1 each; a tail of three samples is cut 2 to 1."""
    loader = world_of(Numbers(11), 4, 2, shuffle=False)[0]
    loss = torch.tensor(3.0, requires_grad=True)
    found = [(loader.weight, loader.scaled(loss)) for _ in loader]
    assert [weight for weight, _ in found] == [1.0, 1.0, pytest.approx(4 / 3)]
    assert [scaled is loss for _, scaled in found] == [True, True, False]
    assert found[2][1].item() == pytest.approx(4.0)


def split(seed: int) -> Subset[int]:
    """Half of the samples, and half of those again, as `random_split` draws them."""
    generator = torch.Generator().manual_seed(seed)
    whole: Any = Numbers(8)
    half: Any = random_split(whole, [4, 4], generator=generator)[0]
    return Subset(half, [0, 1])


def test_position_among_other_samples_is_refused() -> None:
    """A new process that has split the dataset anew would train on what was held back."""
    state = Loader(split(1), 2).state_dict()
    Loader(split(1), 2).load_state_dict(state)
    Loader(split(1), 2).load_state_dict({k: v for k, v in state.items() if k != "selection"})
    for other in (split(2), Numbers(2)):
        with pytest.raises(CallError, match=r"a Subset of other samples .*manual_seed\(0\)"):
            Loader(other, 2).load_state_dict(state)


def structure(data: Loader) -> tuple[str, ...]:
    return core_of(State(data=data)).structure()


def test_ranks_that_have_drawn_other_samples_differ_in_structure() -> None:
    """So that it is said as the job begins, or to a process that joins later."""
    one, same, other = (structure(Loader(split(seed), 2)) for seed in (1, 1, 2))
    assert one == same != other
    assert "of the selection" in one[0]
    assert "selection" not in structure(Loader(Numbers(2), 2))[0]


def test_batch_that_is_read_while_the_world_changes_does_not_count() -> None:
    """A thread of the script's that fetches ahead is in the dataset, and `train` is called anew."""

    class Moving(Numbers):
        def __getitem__(self, index: int) -> int:
            if index == 4:
                loader_core_of(loader).place(0, 1, Watch())
            return super().__getitem__(index)

    loader = loader_of(Moving(12), 4, shuffle=False)
    iterator = iter(loader)
    next(iterator)
    loader_core_of(loader).commit()
    with pytest.raises(CallError, match="before the world changed"):
        next(iterator)
    assert not loader_core_of(loader).has_delivered


def test_world_that_grows_beyond_a_loader_that_waits_for_its_turn_goes_on() -> None:
    """One for validations, say, the first of which is still to come: training has begun."""
    data, held = loader_of(Numbers(100), 8), loader_of(Numbers(10), 2)
    loaders = Loaders([])
    loaders.add("data", data)
    loaders.add("held", held)
    watch: Any = Watch()
    loaders.place(state_case.world(), watch, ())
    next(iter(data))
    loaders.commit(None)
    loaders.place(state_case.world(3, 4), watch, ())
    assert len(list(held)) == 5 and held.weight == 0.0
