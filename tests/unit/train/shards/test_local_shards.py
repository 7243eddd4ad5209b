"""What is kept of a state whose generation is over: named rightly, safe from the next, complete."""

from typing import Any

import pytest
import torch

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.errors import CallError
from elasticd.tensors.local_shard import LocalShard
from elasticd.tensors.tensor_spec import views
from elasticd.tensors.tree import Tree, flatten
from elasticd.train.shards import local_shards as module
from elasticd.train.shards.local_shards import Remnant, Remnants
from elasticd.train.shards.shard_cover import StateLabel


class Spread:
    """A state, as `Remnants` sees one: two tensors, one of which is to be taken for a part."""

    def __init__(self) -> None:
        self.position = (5, 1)
        self.is_clean = self.is_sharded = True
        self.part = torch.arange(6.0).reshape(2, 3)
        self.mean = torch.ones(2)

    def tree(self) -> Tree:
        return flatten("state", {"w": self.part, "mean": self.mean, "lr": 0.5})


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Spread:
    """Its `w` is rows 4 and 5 of more."""
    found = Spread()

    def local_part(tensor: torch.Tensor) -> LocalShard:
        if tensor is found.part:
            return LocalShard(tensor, (4, 0), is_plain_tensor=False, is_first=True)
        return LocalShard(tensor, (0,) * tensor.dim(), is_plain_tensor=True, is_first=True)

    monkeypatch.setattr(module, "local_part", local_part)
    return found


def alike(tree: Tree) -> list[bool]:
    return [True, False]


def collected(state: Spread, *, run: int = 1) -> Remnants:
    """Of a generation 3 that began at step 4."""
    remnants = Remnants()
    remnants.enter(3, (4, 1), None)
    remnants.collect(state, alike, run)
    return remnants


def test_state_is_named_by_the_generation_that_committed_it(state: Spread) -> None:
    """And by its run and position; it was spread for the same generation."""
    (label,) = collected(state).named()
    assert label == StateLabel(1, 3, 5, 1, 3)


def test_state_that_nobody_trained_is_what_it_was_before(state: Spread) -> None:
    """Whoever is interrupted before the first commit has the very state that it was given."""
    remnants = Remnants()
    remnants.enter(4, (5, 1), Snapshot(run=1, generation=2, step=5))
    remnants.collect(state, alike, 2)
    assert set(remnants.named()) == {StateLabel(1, 2, 5, 1, 4)}


def test_beginning_is_not_worth_keeping(state: Spread) -> None:
    """Nothing was committed, and nobody had it before."""
    remnants = Remnants()
    remnants.enter(1, (5, 1), None)
    remnants.collect(state, alike, 1)
    assert not remnants.has_any


@pytest.mark.parametrize("flaw", ["is_clean", "is_sharded"])
def test_state_that_is_dirty_or_whole_on_each_rank_is_not_kept(state: Spread, flaw: str) -> None:
    """Of the one nothing is to be had, the other is copied by those who have it."""
    setattr(state, flaw, False)
    assert not collected(state).has_any


def test_state_that_was_being_replaced_is_not_kept(state: Spread) -> None:
    """It is not known which one it is."""
    remnants = Remnants()
    remnants.enter(3, (4, 1), None)
    remnants.invalidate()
    remnants.collect(state, alike, 1)
    assert not remnants.has_any


def test_tensor_without_a_place_in_checkpoints_is_no_remnant(
    state: Spread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one that is spread in a way that is no box; who takes snapshots says so."""

    def refuse(tree: Any) -> Any:
        raise CallError("state.w is of the type bits8, which a checkpoint cannot hold")

    monkeypatch.setattr(module, "described", refuse)
    assert not collected(state).has_any


def test_older_state_stays_beside_the_one_that_came_of_it(state: Spread) -> None:
    """Until it is known which of them the others have; all else is forgotten."""
    remnants = collected(state)
    remnants.enter(4, (5, 1), Snapshot(run=1, generation=3, step=5))
    remnants.collect(state, alike, 1)
    remnants.collect(state, alike, 1)
    old, new = StateLabel(1, 3, 5, 1, 3), StateLabel(1, 3, 5, 1, 4)
    assert list(remnants.named()) == [old, new]
    kept = remnants.keep(old)
    assert kept is not None and kept.label == old and list(remnants.named()) == [old]
    assert remnants.keep(None) is None and not remnants.has_any


def test_what_lives_on_is_copied_and_what_does_not_is_not(state: Spread) -> None:
    """Parameters of the old mesh are trained by nobody any more."""
    kept = collected(state).keep(StateLabel(1, 3, 5, 1, 3))
    assert kept is not None
    state.mean += 7
    memory, pieces, starts = kept.pack([0, 1])
    part, mean = views(memory, kept.inventory.tensors, pieces, starts)
    assert torch.equal(part, state.part) and torch.equal(mean, torch.ones(2))
    state.part += 1
    assert torch.equal(views(*_packed(kept, [0]))[0], state.part), "no second copy in memory"


def test_pack_brings_the_boxes_that_it_is_asked_for(state: Spread) -> None:
    """With their places in the whole."""
    kept = Remnant(StateLabel(1, 3, 5, 1, 3), state.tree(), [True, False])
    assert kept.inventory.is_own == (False, True)
    memory, pieces, _ = kept.pack([0])
    assert [(each.tensor, each.offsets, each.shape) for each in pieces] == [(0, (4, 0), (2, 3))]
    assert memory.nbytes == 24 and kept.pack([])[1] == ()


def _packed(kept: Remnant, which: list[int]) -> Any:
    memory, pieces, starts = kept.pack(which)
    return memory, kept.inventory.tensors, pieces, starts
