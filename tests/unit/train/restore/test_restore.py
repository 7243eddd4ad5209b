"""What is restored is the newest state that is whole, and nothing is restored by halves."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore  # type: ignore[attr-defined]

from elasticd.checkpoint.commit.fetch import size_of
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Manifest, Part, Piece, Tensor
from elasticd.errors import ElasticdError
from elasticd.keeper.client import KeeperGone
from elasticd.keeper.wire import message as ms
from elasticd.records.codec import to_plain
from elasticd.train.interrupt import Interrupted
from elasticd.train.restore.checkpoint_choice import UPLOAD_WAIT_S, choose_checkpoint
from elasticd.train.restore.exclusions import TRIES, Exclusions
from elasticd.train.restore.model_match import CannotRestore
from elasticd.train.restore.restore import RestoreResult, restore
from elasticd.train.restore.stored_checkpoint import divided
from tests.unit.checkpoint.records import header
from tests.unit.train.restore.restore_case import EPOCH, Group, Plain, Stock, snapshot_of, state_of
from tests.unit.train.save.save_case import same


def alone(
    stock: Stock, state: Plain | None = None, *, is_stale: bool = False
) -> tuple[RestoreResult, Plain]:
    """Restore on one rank that is alone."""
    state = state or Plain(state_of(0))
    group = Group(0, 1, HashStore())
    return restore(group, stock, state, lambda: is_stale), state


def chosen(stock: Stock, *nodes: Stock, alive: Snapshot | None = None) -> tuple[str, int]:
    """What rank 0 chooses from its own keeper's storage, the memory of all nodes, and the ranks."""
    every = nodes or (stock,)
    listed = [(rank, held) for rank, each in enumerate(every) for held in each.held]
    said: dict[str, Any] = choose_checkpoint(stock, listed, below=0, alive=alive)
    if said["place"] == "ranks":
        assert alive is not None
        return "ranks", alive.step
    if said["place"] != "memory":
        found = stock.stored.get(said["number"])
        return said["place"], found.step if found is not None else 0
    steps = {plain["snapshot"]["step"] for _, plain in said["holders"]}
    assert sorted(plain["share"] for _, plain in said["holders"]) == list(range(stock.holders))
    for rank, plain in said["holders"]:
        assert plain in to_plain(tuple(every[rank].held)), "whoever is to bring it has it"  # type: ignore[operator]
    (step,) = steps
    return "memory", step


def unsaved(stock: Stock, step: int, *shares: int) -> None:
    """What is held in memory only."""
    known = len(stock.held)
    stock.hold(step, *shares)
    stock.held[known:] = [replace(each, is_saved=False) for each in stock.held[known:]]


# --- which one ----------------------------------------------------------------------------------


def test_nothing_anywhere_is_nothing() -> None:
    """The training begins."""
    assert chosen(Stock()) == ("none", 0)


def test_memory_counts_only_if_all_shares_are_there() -> None:
    """On any nodes together."""
    first, second = Stock(), Stock()
    first.store(5)
    first.hold(9, 0)
    assert chosen(first, first, second) == ("storage", 5)
    second.hold(9, 1)
    assert chosen(first, first, second) == ("memory", 9)


def test_newest_whole_one_in_memory_wins() -> None:
    """Not one that is newer and lacks a share."""
    stock = Stock()
    stock.hold(7, 0, 1)
    stock.hold(9, 0, 1)
    stock.hold(11, 1)
    assert chosen(stock) == ("memory", 9)


def test_shares_of_two_snapshots_make_no_whole() -> None:
    """Though they are of one step: a newer generation has done it again."""
    stock = Stock()
    stock.hold(9, 0, generation=1)
    stock.hold(9, 1, generation=2)
    assert chosen(stock) == ("none", 0)


def test_newer_generation_wins_over_more_steps() -> None:
    """What an older one did beyond it was given up."""
    stock = Stock()
    stock.hold(20, 0, 1, generation=1)
    stock.hold(9, 0, 1, generation=2)
    assert chosen(stock) == ("memory", 9)


@pytest.mark.parametrize(
    ("held", "stored", "wanted"),
    [(9, 8, ("memory", 9)), (9, 9, ("memory", 9)), (9, 10, ("storage", 10))],
)
def test_newer_of_memory_and_storage_wins(held: int, stored: int, wanted: tuple[str, int]) -> None:
    """Memory where they are equal: it costs no request."""
    stock = Stock()
    stock.hold(held, 0, 1)
    stock.store(stored)
    assert chosen(stock) == wanted


def test_newer_one_that_is_not_whole_is_waited_for() -> None:
    """A node that has left may still be bringing its part to the storage."""
    stock = Stock()
    stock.store(5)
    stock.hold(9, 0)
    stock.settling = {19: snapshot_of(9)}
    assert chosen(stock) == ("storage", 9)
    assert [each.settle_s for each in stock.of(ms.Find)] == [0.0, UPLOAD_WAIT_S]


@pytest.mark.parametrize("is_saved", [False, True])
def test_step_in_flight_is_not_waited_for_where_each_step_is_held(is_saved: bool) -> None:
    """The node was lost while it was sent: nobody uploads it, or the step before is there."""
    stock = Stock()
    stock.store(2)
    unsaved(stock, 8, 0, 1)
    if is_saved:
        stock.hold(9, 0)
    else:
        unsaved(stock, 9, 0)
    assert chosen(stock) == ("memory", 8)
    assert [each.settle_s for each in stock.of(ms.Find)] == [0.0]


def test_one_that_is_held_in_memory_only_is_not_waited_for() -> None:
    """Storage will never have it."""
    stock = Stock()
    stock.store(5)
    unsaved(stock, 9, 0)
    assert chosen(stock) == ("storage", 5)
    assert [each.settle_s for each in stock.of(ms.Find)] == [0.0]


def test_older_one_that_is_not_whole_is_not_waited_for() -> None:
    """Nor one that is whole."""
    stock = Stock()
    stock.store(9)
    stock.hold(7, 0)
    stock.hold(11, 0, 1)
    assert chosen(stock) == ("memory", 11)
    assert [each.settle_s for each in stock.of(ms.Find)] == [0.0]


@pytest.mark.parametrize(
    ("alive", "held", "stored", "wanted"),
    [
        ((1, 9), 8, 7, ("ranks", 9)),
        ((1, 9), 9, 9, ("ranks", 9)),
        ((1, 9), 10, 9, ("memory", 10)),
        ((1, 9), 8, 10, ("storage", 10)),
        ((1, 20), 0, 9, ("ranks", 20)),
        ((0, 20), 9, 0, ("memory", 9)),
        ((0, 20), 0, 9, ("storage", 9)),
    ],
)
def test_what_the_ranks_have_counts_unless_something_is_newer(
    alive: tuple[int, int], held: int, stored: int, wanted: tuple[str, int]
) -> None:
    """A newer generation is, too: what an older one did beyond it was given up."""
    stock = Stock()
    if held:
        stock.hold(held, 0, 1)
    if stored:
        stock.store(stored)
    generation, step = alive
    assert chosen(stock, alive=snapshot_of(step, generation=generation)) == wanted


def test_nobody_waits_for_a_storage_that_has_nothing_newer_than_the_ranks() -> None:
    """A part that is missing in memory is of an older state; a storage that is away is said."""
    stock = Stock()
    stock.store(5)
    stock.hold(9, 0)
    assert chosen(stock, alive=snapshot_of(10)) == ("ranks", 10)
    assert [each.settle_s for each in stock.of(ms.Find)] == [0.0]
    stock.is_away = True
    said = choose_checkpoint(stock, [], below=0, alive=snapshot_of(10))
    assert said["place"] == "ranks" and "Storage was not asked" in str(said["notes"])


# --- of one rank --------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["memory", "storage"])
def test_state_is_filled_and_its_position_is_set(place: str) -> None:
    """All of it, in place where there is a place, and the generation is opened at its step.

    No optimizer takes a step to make places where all are there.
    """
    stock = Stock(holders=3)
    stock.store(5)
    if place == "memory":
        stock.hold(5, 0, 1, 2)
    state = Plain(state_of(0))
    before = state.entries["w"]
    restored, _ = alone(stock, state)
    assert same(state.entries, state_of(5))
    assert state.entries["w"] is not before and torch.equal(before, state_of(5)["w"])
    assert state.position == (5, EPOCH) and not state.is_room_made and not state.is_broken
    assert (restored.run, restored.snapshot, restored.place) == (9, snapshot_of(5), place)
    assert restored.epoch == EPOCH and restored.nbytes > 1_600_000
    # With a run that memory knows, nobody waits for the storage.
    run = 1 if place == "memory" else 0
    assert stock.of(ms.Open) == [ms.Open(generation=2, step=5, run=run)]
    assert restored.sentence.startswith(f"Restored step 5 (run 1, generation 1) from {place}: 1.5")


def test_what_is_not_here_yet_is_made() -> None:
    """Optimizers' state before the first step, for which they make places if they can."""
    stock = Stock()
    stock.store(5)
    state = Plain({"w": torch.zeros(10, 6)})
    alone(stock, state)
    assert same(state.entries, state_of(5)) and state.is_room_made


def test_tensor_whose_elements_share_memory_is_replaced() -> None:
    """An expanded one cannot be written to."""
    stock = Stock()
    stock.store(5)
    state = Plain(state_of(0) | {"w": torch.zeros(1, 6).expand(10, 6)})
    alone(stock, state)
    assert same(state.entries, state_of(5))


def test_without_a_checkpoint_the_generation_is_opened_at_the_start() -> None:
    """And nothing is written to the state."""
    stock = Stock()
    restored, state = alone(stock)
    assert restored.snapshot is None and restored.run == 9 and restored.sentence == ""
    assert same(state.entries, state_of(0)) and state.position == (0, 0)
    assert stock.of(ms.Open) == [ms.Open(generation=2, step=0)]


def test_damaged_checkpoint_falls_back_and_says_so() -> None:
    """As far as it takes."""
    stock = Stock()
    stock.store(5, 6, 7)
    stock.damaged = {16, 17}
    restored, state = alone(stock)
    assert same(state.entries, state_of(5))
    assert restored.sentence.startswith("checkpoint 17 is damaged checkpoint 16 is damaged Restor")


def test_memory_that_vanished_falls_back_to_storage() -> None:
    """It was overwritten between two questions, say."""
    stock = Stock()
    stock.store(5)
    stock.hold(9, 0, 1)
    stock.damaged = {9}
    restored, state = alone(stock)
    assert same(state.entries, state_of(5)) and restored.place == "storage"


def test_memory_that_is_not_as_it_was_saved_is_never_handed_back() -> None:
    """The same share on another node is; without one, what is stored."""
    stock = Stock()
    stock.store(5)
    stock.hold(9, 0, 1)
    bad, second = stock.held[1], replace(stock.held[1], holder=1)
    stock.flipped = {bad}
    restored, state = alone(stock)
    assert same(state.entries, state_of(5)) and restored.place == "storage"
    assert "Share 1 of step 9 (run 1, generation 1) in the memory of this node" in restored.sentence
    stock.held.append(second)
    restored, state = alone(stock)
    assert same(state.entries, state_of(9)) and restored.place == "memory"
    assert [each.held for each in stock.of(ms.Map)][-2:] == [stock.held[0], second]


def test_damaged_checkpoint_falls_back_to_memory_that_is_newer_than_the_one_before() -> None:
    """What fails in storage says nothing against the memory."""
    stock = Stock()
    stock.store(5, 9)
    stock.hold(8, 0, 1)
    stock.damaged = {19}
    restored, state = alone(stock)
    assert same(state.entries, state_of(8)) and restored.place == "memory"


def test_damage_that_is_met_in_the_middle_leaves_nothing_behind() -> None:
    """Half of the state was written when it was found; the one before writes over all of it."""
    stock = Stock()
    stock.store(5, 6, 7)
    stock.damaged_late = {16, 17}
    restored, state = alone(stock)
    assert same(state.entries, state_of(5)) and state.position == (5, EPOCH)
    assert restored.sentence.startswith("checkpoint 17 is damaged in the middle checkpoint 16 is")


@pytest.mark.parametrize("what", ["damaged", "damaged_late", "notes"])
def test_job_ends_where_all_are_damaged(what: str) -> None:
    """It does not begin anew where its work was: whoever reads it decides."""
    stock = Stock()
    stock.notes = ("The checkpoint of step 5 is damaged.",) if what == "notes" else ()
    if what != "notes":
        stock.store(5)
        setattr(stock, what, {15})
    with pytest.raises(CannotRestore, match="None of the checkpoints can be read: ") as caught:
        alone(stock)
    assert "is damaged" in str(caught.value) and "give another URL" in str(caught.value)
    assert not stock.of(ms.Open), "nobody writes there"


def test_memory_that_vanished_with_nothing_stored_is_a_beginning_that_is_told() -> None:
    """There is no checkpoint that somebody could look at."""
    stock = Stock()
    stock.hold(9, 0, 1)
    stock.damaged = {9}
    restored, _ = alone(stock)
    assert restored.snapshot is None and "not in memory any more" in restored.sentence


def test_storage_that_refuses_ends_the_job() -> None:
    """No world of it would do better."""
    stock = Stock()
    stock.refuses = "the bucket is another job's"
    with pytest.raises(CannotRestore, match="another job's") as caught:
        alone(stock)
    assert caught.value.ends_job and caught.value.is_plain


def test_storage_that_does_not_answer_for_a_while_is_asked_again() -> None:
    """What it has may be whole: an older checkpoint would cost what was trained since."""
    stock = Stock()
    stock.store(5, 6)
    stock.silent = {16: TRIES - 1}
    restored, state = alone(stock)
    assert same(state.entries, state_of(6)) and "does not answer" in restored.sentence
    stock.silent = {16: TRIES}
    with pytest.raises(CannotRestore, match="the storage does not answer"):
        alone(stock)


def test_storage_that_one_rank_finds_damaged_and_another_away_is_damaged() -> None:
    """The older checkpoint is taken where one rank knows that the newer one is not whole."""
    out = Exclusions()
    out.note("landed", place="storage", number=16, is_away=True)
    assert (out.below, out.is_storage_away) == (0, False)
    out.note("landed", place="storage", number=16, is_away=False)
    assert (out.below, out.is_storage_away) == (16, False)


@pytest.mark.parametrize("question", [ms.List, ms.Find, ms.Read, ms.Stream, ms.More, ms.Open])
def test_keeper_that_dies_meanwhile_does_not_end_the_job(question: type) -> None:
    """The next world asks another one; what stands in the storage is as good as before."""
    stock = Stock()
    stock.store(5)
    stock.gone_at = question
    with pytest.raises(KeeperGone):
        alone(stock)


@pytest.mark.parametrize("otherwise", [{0}, {1}])
def test_shares_that_were_cut_in_two_ways_make_no_state(otherwise: set[int]) -> None:
    """Some elements of it nobody has, and others are there twice: each share is as it was saved."""
    stock = Stock()
    stock.store(5)
    stock.hold(9, 0, 1)
    stock.otherwise = otherwise
    restored, state = alone(stock)
    assert same(state.entries, state_of(5)) and restored.place == "storage"
    assert "is not whole: it has" in restored.sentence


def test_storage_that_is_away_is_no_harm_where_memory_has_it_all() -> None:
    """It is said; where memory lacks a share there is nothing to go on from."""
    stock = Stock()
    stock.is_away = True
    stock.hold(9, 0)
    with pytest.raises(ElasticdError, match="does not answer"):
        alone(stock)
    stock.hold(9, 1)
    restored, state = alone(stock)
    assert same(state.entries, state_of(9)) and restored.place == "memory"
    assert restored.sentence.startswith("Storage was not asked: the storage does not answer")


def test_other_model_is_refused_before_anything_is_written() -> None:
    """The state is what it was."""
    stock = Stock()
    stock.store(5)
    state = Plain(state_of(0) | {"w": torch.zeros(6, 10)})
    with pytest.raises(CannotRestore, match=r"state\.w is float32 \[10, 6\] in the checkpoint"):
        alone(stock, state)
    assert not state.is_broken
    assert same(state.entries["large"], state_of(0)["large"])


def test_state_that_does_not_take_it_is_said_in_a_sentence() -> None:
    """A module's own load_state_dict may find something."""

    class Stubborn(Plain):
        def load(self, source: Any, position: tuple[int, int], /) -> None:
            raise RuntimeError("size mismatch for w")

    stock = Stock()
    stock.store(5)
    state = Stubborn(state_of(0))
    with pytest.raises(CannotRestore, match="does not load into this model: size mismatch for w"):
        alone(stock, state)
    assert state.is_broken


def test_generation_that_ends_interrupts() -> None:
    """Whoever waits for a word of another."""
    stock = Stock()
    group = Group(1, 2, HashStore())
    with pytest.raises(Interrupted):
        restore(group, stock, Plain({}), lambda: True)


# --- pure ---------------------------------------------------------------------------------------


def manifest(sizes: list[int]) -> Manifest:
    """One piece of so many bytes for each."""
    tensors = tuple(Tensor(str(i), "uint8", (size,)) for i, size in enumerate(sizes))
    pieces = tuple(Piece(i, (0,), (size,), 0, 0) for i, size in enumerate(sizes))
    whole = header()
    found = {name: getattr(whole, name) for name in type(whole).__slots__}
    return Manifest(
        header=type(whole)(**found | {"tensors": tensors}),
        parts=(Part("p", 0, ()),),
        pieces=pieces,
    )


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 9))
def test_pieces_are_divided_once_and_about_equally(sizes: list[int], count: int) -> None:
    """Every stored byte is read by one rank; none has more than its part and one piece."""
    found = manifest(sizes)
    every = divided(found, count)
    assert len(every) == count
    taken = [index for first, number in every for index in range(first, first + number)]
    assert taken == list(range(len(sizes)))
    for first, number in every:
        nbytes = sum(size_of(found, piece) for piece in found.pieces[first : first + number])
        assert nbytes <= sum(sizes) / count + max(sizes, default=0)


def test_sentence_says_what_was_passed_over_first() -> None:
    """And how large and how long it was."""
    said = RestoreResult(
        run=1, snapshot=Snapshot(run=1, generation=2, step=3), nbytes=3 << 19, place="storage",
        seconds=0.25, notes=("One was damaged.",),
    ).sentence  # fmt: skip
    assert said == (
        "One was damaged. Restored step 3 (run 1, generation 2) from storage: 1.5 MiB in 0.25 s."
    )
    assert RestoreResult(run=1, snapshot=None).sentence == ""
