"""Every element is copied by one rank, and by a second one on another node."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from elasticd.checkpoint.format.box_cover import uncovered
from elasticd.checkpoint.format.share_layout import CUT_BYTES
from elasticd.tensors.local_shard import local_part
from elasticd.tensors.tensor_spec import alike
from elasticd.tensors.tree import Tree, flatten, paths
from elasticd.train.save.overlapped_copy import copy_now
from elasticd.train.save.share_plan import SharePlan, has_spare, next_node, spare_of


@given(st.integers(2, 9), st.integers(1, 5), st.randoms(use_true_random=False))
def test_each_share_has_a_second_holder_on_another_node(
    nodes: int, ranks: int, random: Any
) -> None:
    """Exactly one, where all nodes have as many ranks, in whatever order the ranks are."""
    every = [node for node in range(nodes) for _ in range(ranks)]
    random.shuffle(every)
    spares = [spare_of(rank, every) for rank in range(len(every))]
    assert sorted(spares) == list(range(len(every)))  # type: ignore[type-var]
    for rank, spare in enumerate(spares):
        assert spare is not None and every[spare] != every[rank]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_no_share_is_held_twice_on_one_node(nodes: list[int]) -> None:
    """However many ranks each has: a second holder is elsewhere, and there is one at most."""
    spares = [spare_of(rank, nodes) for rank in range(len(nodes))]
    taken = Counter(spare for spare in spares if spare is not None)
    assert all(count == 1 for count in taken.values())
    assert all(spare is None or nodes[spare] != nodes[rank] for rank, spare in enumerate(spares))
    assert (len(set(nodes)) == 1) == (not taken)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_who_has_no_spare_is_known_to_itself(nodes: list[int]) -> None:
    """Without asking all ranks; a spare is on the node that comes next."""
    spares = {spare_of(rank, nodes): nodes[rank] for rank in range(len(nodes))}
    for rank, node in enumerate(nodes):
        assert has_spare(rank, nodes) == (rank in spares)
        assert spares.get(rank, next_node(node, nodes)) == next_node(node, nodes) != node


def test_share_that_no_rank_copies_is_alone() -> None:
    """Where a node has fewer ranks than the one before, and never on one node."""
    tree, is_replicated = replica()

    def alone(nodes: list[int]) -> list[int]:
        every = [
            SharePlan.of(tree, is_replicated, rank=rank, nodes=nodes).parts
            for rank in range(len(nodes))
        ]
        assert not any(each.is_alone for parts in every for each in parts if each.holder)
        return [parts[0].share for parts in every if parts[0].is_alone]

    assert alone([0, 0, 0]) == alone([0, 0, 1, 1]) == []
    assert alone([0, 0, 1]) == [1]


@pytest.mark.parametrize("nodes", [[0, 0, 0], [0, 0, 1, 1], [0, 0, 1], [0]])
def test_only_copy_is_that_of_a_share_that_no_rank_copies_again(nodes: list[int]) -> None:
    """On one node too; it need not be sent anywhere for that."""
    tree, is_replicated = replica()
    every = [
        part
        for rank in range(len(nodes))
        for part in SharePlan.of(tree, is_replicated, rank=rank, nodes=nodes).parts
    ]
    copied = {part.share for part in every if part.holder}
    only = {part.share for part in every if part.is_only_copy}
    assert only == set(range(len(nodes))) - copied
    assert not any(part.is_only_copy for part in every if part.holder)


def test_loss_of_a_node_loses_no_share() -> None:
    """Of any one of four with two ranks each."""
    nodes = [0, 0, 1, 1, 2, 2, 3, 3]
    for lost in range(4):
        held = {
            share
            for rank, node in enumerate(nodes)
            if node != lost
            for share in (rank, spare_of(rank, nodes))
        }
        assert held >= set(range(8))


# --- of a state that all replicas have ----------------------------------------------------------


def replica() -> tuple[Tree, list[bool]]:
    """Parameters and what AdamW keeps, statistics, a plain tensor; one is large enough to cut."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(
        torch.nn.Linear(600, 700), torch.nn.BatchNorm1d(700), torch.nn.Linear(700, 3)
    )
    assert any(parameter.nbytes > CUT_BYTES for parameter in net.parameters())
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.rand(4, 600)).sum().backward()
    optimizer.step()
    tree = flatten(
        "state",
        {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "best": torch.rand(5)},
    )
    return tree, alike(tree, [optimizer])


@pytest.mark.parametrize("nodes", [[0], [0, 0, 0], [0, 1], [0, 0, 1, 1], [0, 1, 2, 3, 4]], ids=str)
def test_first_holders_have_every_element_once_and_second_ones_again(nodes: list[int]) -> None:
    """What second holders have are the same pieces, in the same places."""
    tree, is_replicated = replica()
    every = [
        SharePlan.of(tree, is_replicated, rank=rank, nodes=nodes) for rank in range(len(nodes))
    ]
    firsts, seconds = {}, {}
    for rank, parts in enumerate(every):
        own, *spare = parts.parts
        assert (own.share, own.holder) == (rank, 0)
        firsts[own.share] = own
        seconds.update({each.share: each for each in spare})
        assert all(each.holder == 1 for each in spare)
    for index, tensor in enumerate(every[0].tensors):
        boxes = [
            (piece.offsets, piece.shape)
            for part in firsts.values()
            for piece in part.layout.pieces
            if piece.tensor == index
        ]
        assert uncovered(tensor.shape, boxes) == "", tensor.name
    assert set(seconds) == (set(range(len(nodes))) if len(set(nodes)) > 1 else set())
    for share, second in seconds.items():
        assert second.layout == firsts[share].layout
        assert (second.now, second.later) == (firsts[share].now, firsts[share].later)


def test_what_replicas_may_differ_in_is_rank_0s_and_copied_at_once() -> None:
    """Statistics and plain values; and nothing that an optimizer owns is copied at once."""
    tree, is_replicated = replica()
    for rank in range(3):
        (part,) = SharePlan.of(tree, is_replicated, rank=rank, nodes=[0, 0, 0]).parts
        pieces = part.layout.pieces
        assert sorted(part.now + part.later) == list(range(len(pieces)))
        assert all(not is_replicated[pieces[index].tensor] for index in part.now)
        assert all(is_replicated[pieces[index].tensor] for index in part.later)
        assert bool(part.now) == (rank == 0)


def test_copied_shares_make_the_state_again() -> None:
    """Through the memory of three ranks, bit for bit."""
    tree, is_replicated = replica()
    found = [torch.full_like(tensor, -1) for tensor in tree.tensors]
    for rank in range(3):
        parts = SharePlan.of(tree, is_replicated, rank=rank, nodes=[0, 1, 2])
        here = [local_part(tensor) for tensor in tree.tensors]
        for part in parts.parts:
            places = part.places(memoryview(bytearray(part.layout.size)), parts.tensors)
            copy_now(part.pairs(part.now, here, places) + part.pairs(part.later, here, places))
            for piece, place in zip(part.layout.pieces, places, strict=True):
                box = tuple(
                    slice(o, o + s) for o, s in zip(piece.offsets, piece.shape, strict=True)
                )
                found[piece.tensor][box] = place
    assert all(map(torch.equal, found, tree.tensors))


# --- does a plan still fit? ---------------------------------------------------------------------


def values() -> dict[str, Any]:
    return {"a": torch.zeros(2, 3), "b": [torch.zeros(4, dtype=torch.int64), 5], "c": "text"}


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"c": "other"}, True),
        ({"a": torch.ones(2, 3)}, True),
        ({"a": torch.zeros(3, 2)}, False),
        ({"a": torch.zeros(2, 3, 1)}, False),
        ({"a": torch.zeros(2, 3, dtype=torch.float64)}, False),
        ({"a": None}, False),
        ({"c": torch.zeros(1)}, False),
        ({"b": [torch.zeros(4, dtype=torch.int64), torch.zeros(())]}, False),
        ({"b": {"0": torch.zeros(4, dtype=torch.int64)}}, False),
        ({"b": (5, torch.zeros(4, dtype=torch.int64))}, False),
    ],
    ids=str,
)
def test_every_change_of_structure_is_noticed(change: dict[str, Any], fits: bool) -> None:
    """Of number, type, shape or name; values are no structure."""
    planned = flatten("state", values())
    parts = SharePlan.of(planned, [True] * len(planned.tensors), rank=0, nodes=[0])
    changed = flatten("state", values() | change)
    assert parts.fits(changed, [True] * len(changed.tensors)) is fits


def test_tensor_that_got_another_name_is_noticed() -> None:
    """It is by name that a checkpoint is loaded."""
    planned = flatten("state", {"one": torch.zeros(2), "two": torch.ones(2)})
    parts = SharePlan.of(planned, [True, True], rank=0, nodes=[0])
    other = flatten("state", {"two": torch.ones(2), "one": torch.zeros(2)})
    assert not parts.fits(other, [True, True])


@pytest.fixture
def mesh() -> Iterator[Any]:
    """A mesh of this process alone."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


def test_tensor_that_is_spread_otherwise_is_noticed(mesh: Any) -> None:
    """Though name, type, shape and memory are the same; and which of two it is."""
    plain = torch.zeros(2, 3)
    replicated, sharded = (
        DTensor.from_local(plain, mesh, [kind], run_check=False) for kind in (Replicate(), Shard(0))
    )
    first = flatten("state", {"one": plain, "two": replicated})
    parts = SharePlan.of(first, [True, True], rank=0, nodes=[0])
    again = DTensor.from_local(plain, mesh, [Replicate()], run_check=False)
    assert parts.fits(flatten("state", {"one": plain, "two": again}), [True, True])
    for one, two in ((plain, sharded), (plain, plain), (replicated, plain)):
        assert not parts.fits(flatten("state", {"one": one, "two": two}), [True, True])


def test_what_optimizers_own_is_what_they_keep_of_their_parameters() -> None:
    """By memory: a view of a parameter counts, and what a script keeps beside them does not."""
    first, last = torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)
    net = torch.nn.Sequential(first, last)
    optimizer = torch.optim.AdamW(first.parameters())
    net(torch.rand(4, 3)).sum().backward()
    optimizer.step()
    optimizer.state[first.weight]["note"] = "text"
    entries = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "own": torch.ones(2)}
    tree = flatten("state", entries)

    def others() -> set[str]:
        rows = zip(paths(tree), alike(tree, [optimizer]), strict=True)
        return {name for name, is_replicated in rows if not is_replicated}

    beside = {"state.net.1.weight", "state.net.1.bias", "state.own"}
    assert others() == beside
    optimizer.state[first.bias]["exp_avg"] = torch.zeros(2)
    assert others() == beside | {"state.optimizer.state.1.exp_avg"}


def test_parameter_that_an_optimizer_takes_over_is_noticed() -> None:
    """It is cut among the ranks from then on, though no tensor is another one."""
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD([net.weight], lr=0.1)
    tree = flatten("state", {"net": net.state_dict()})
    parts = SharePlan.of(tree, alike(tree, [optimizer]), rank=0, nodes=[0])
    assert parts.fits(tree, alike(tree, [optimizer]))
    optimizer.add_param_group({"params": [net.bias]})
    assert not parts.fits(tree, alike(tree, [optimizer]))
