"""What the ranks that live still have together: whole or not, newest first, never of two steps."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from hypothesis import event, given
from hypothesis import strategies as st

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Tensor
from elasticd.train.shards.shard_cover import (
    ShardCover,
    ShardInventory,
    StateLabel,
    shown,
    survivors,
)

Words = list[dict[StateLabel, str]]


def label(step: int, *, generation: int = 1, layout: int = 1, epoch: int = 0) -> StateLabel:
    return StateLabel(1, generation, step, epoch, layout)


def inventory(
    rank: int, mesh: tuple[int, int], shapes: Sequence[tuple[int, ...]]
) -> ShardInventory:
    """Of one rank of a mesh of replicas and shards: rows, as FSDP2 cuts them; then a number that is
    equal on all, and one that each rank has for itself."""
    shards = mesh[1]
    turn = rank % shards
    tensors, boxes = [], []
    for index, shape in enumerate(shapes):
        tensors.append(Tensor(f"w{index}", "float32", shape))
        each = -(-shape[0] // shards)
        first = min(each * turn, shape[0])
        rows = min(each, shape[0] - first)
        boxes.append(((first, *[0] * (len(shape) - 1)), (rows, *shape[1:])))
    for name in ("step", "mean"):
        tensors.append(Tensor(name, "float32", ()))
        boxes.append(((), ()))
    return ShardInventory(tuple(tensors), tuple(boxes), (*[False] * (len(shapes) + 1), True))


def words(
    having: Mapping[int, StateLabel], mesh: tuple[int, int], shapes: Sequence[tuple[int, ...]]
) -> tuple[Words, dict[str, ShardInventory]]:
    """What the ranks of a new world say, by the ranks they had in the old one."""
    inventories = {str(rank % mesh[1]): inventory(rank, mesh, shapes) for rank in having}
    return [{one: str(rank % mesh[1])} for rank, one in having.items()], inventories


SHAPES = ((7, 3), (4,))


# --- examples -----------------------------------------------------------------------------------


def test_replica_has_what_a_lost_rank_had() -> None:
    """Two replicas of two shards; whoever lives brings each part once, as evenly as can be."""
    having = dict.fromkeys((0, 1, 2), label(5))
    found = survivors(*words(having, (2, 2), SHAPES))
    assert found is not None and found.label == label(5) and found.teller == 0
    brought = sorted(index for given in found.given.values() for index in given)
    assert brought == [0, 0, 1, 1, 2, 3]
    assert found.given[1] and found.given[0] and found.given[2], "each brings something"
    assert 3 in found.given[0], "what each rank has for itself comes from one"


def test_ranks_of_different_replicas_make_a_whole() -> None:
    """One of each, whichever."""
    assert survivors(*words(dict.fromkeys((0, 3), label(5)), (2, 2), SHAPES)) is not None
    assert survivors(*words(dict.fromkeys((1, 2), label(5)), (2, 2), SHAPES)) is not None


def test_shard_that_nobody_has_is_lost() -> None:
    """Both ranks that had it are gone."""
    assert survivors(*words(dict.fromkeys((0, 2), label(5)), (2, 2), SHAPES)) is None
    assert survivors([{}, {}], {}) is None and survivors([], {}) is None


def test_parts_of_two_steps_make_no_whole() -> None:
    """Nor of two epochs or generations at one step, nor parts that were cut in two ways."""
    for other in (label(6), label(5, epoch=1), label(5, generation=2), label(5, layout=2)):
        assert survivors(*words({0: label(5), 1: other}, (2, 2), SHAPES)) is None


def test_newest_whole_state_wins() -> None:
    """A rank that is a step ahead alone, after a step that was in flight, is not waited for."""
    having = {0: label(6), 1: label(5), 2: label(5)}
    found = survivors(*words(having, (2, 2), SHAPES))
    assert found is not None and found.label == label(5) and set(found.given) == {1, 2}
    found = survivors(*words({**having, 3: label(6)}, (2, 2), SHAPES))
    assert found is not None and found.label == label(6)


def test_newer_generation_is_newer_than_more_steps() -> None:
    """As with snapshots: what the older one did beyond it was given up."""
    having = {0: label(9), 1: label(9), 2: label(5, generation=2), 3: label(5, generation=2)}
    found = survivors(*words(having, (2, 2), SHAPES))
    assert found is not None and found.label.generation == 2


def test_rank_may_have_two_states() -> None:
    """What it had before this generation, and what it was filled with: other ranks have the one."""
    inventories = {"old": inventory(0, (1, 2), SHAPES), "new": inventory(0, (2, 1), SHAPES)}
    labels: Words = [{label(5): "old", label(5, layout=2): "new"}, {label(5): "old"}]
    found = survivors(labels, inventories)
    assert found is not None and found.label.layout == 2 and set(found.given) == {0}


def test_ranks_with_other_tensors_make_no_whole() -> None:
    """One of them has another model."""
    inventories = {
        "a": inventory(0, (2, 2), SHAPES), "b": inventory(1, (2, 2), ((9, 3), (4,)))
    }  # fmt: skip
    assert survivors([{label(5): "a"}, {label(5): "b"}], inventories) is None


def test_each_inventory_is_shown_once() -> None:
    """By the first rank that has it."""
    assert shown([{}, {label(5): "a"}, {label(5): "b"}, {label(5): "a"}]) == {"a": 1, "b": 2}


def test_words_survive_the_store() -> None:
    """As JSON."""
    one = inventory(3, (2, 2), ((7, 3), (1,), (0, 2)))
    assert ShardInventory.from_json(one.to_json()) == one
    none = ShardInventory((Tensor("w", "int8", (2,)),), (None,), (False,))
    assert ShardInventory.from_json(none.to_json()) == none
    whole = ShardCover(label(5), 1, {1: (0, 2), 3: ()})
    assert ShardCover.from_json(whole.to_json()) == whole
    assert label(5, generation=3).snapshot == Snapshot(run=1, generation=3, step=5)


# --- any mesh, any deaths -----------------------------------------------------------------------


class Case(NamedTuple):
    mesh: tuple[int, int]
    shapes: tuple[tuple[int, ...], ...]
    having: dict[int, StateLabel]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    mesh = (draw(st.integers(1, 4)), draw(st.integers(1, 5)))
    shape = st.tuples(st.integers(0, 9)) | st.tuples(st.integers(0, 9), st.integers(0, 3))
    shapes = tuple(draw(st.lists(shape, max_size=4)))
    alive = draw(st.sets(st.integers(0, mesh[0] * mesh[1] - 1)))
    # Mostly one step; some are one ahead, or were away for a generation.
    newest = st.sampled_from([label(7)] * 4 + [label(8), label(9, generation=0), label(7, epoch=1)])
    return Case(mesh, shapes, {rank: draw(newest) for rank in sorted(alive)})


def elements(box: tuple[tuple[int, ...], tuple[int, ...]]) -> set[tuple[int, ...]]:
    return set(product(*(range(o, o + s) for o, s in zip(*box, strict=True))))


@given(cases())
def test_whole_state_is_found_if_there_is_one_and_each_element_comes_once(case: Case) -> None:
    """Compared with counting elements: none missing, none twice, all of one state, the newest."""
    labels, inventories = words(case.having, case.mesh, case.shapes)
    found = survivors(labels, inventories)
    whole = []
    for one in set(case.having.values()):
        own = [inventories[each[one]] for each in labels if one in each]
        have = [
            set().union(*(elements(box) for each in own if (box := each.boxes[index])))
            for index in range(len(case.shapes))
        ]
        if all(
            here == elements(((0,) * len(shape), shape))
            for here, shape in zip(have, case.shapes, strict=True)
        ):
            whole.append(one)
    event("whole" if whole else "lost")
    if not whole:
        assert found is None
        return
    assert found is not None and found.label == max(whole)
    brought: list[list[tuple[int, ...]]] = [[] for _ in range(len(case.shapes) + 2)]
    for rank, given_by in found.given.items():
        assert found.label in labels[rank], "a rank of another step is no source"
        for index in given_by:
            box = inventories[labels[rank][found.label]].boxes[index]
            assert box is not None
            brought[index] += elements(box)
    for index, shape in enumerate((*case.shapes, (), ())):
        assert sorted(brought[index]) == sorted(elements(((0,) * len(shape), shape)))
    assert len(case.shapes) + 1 in found.given[found.teller]
