"""Which elements are here, of DTensors on four real ranks; and which are in common with a box."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from elasticd.checkpoint.format.manifest import Piece
from elasticd.checkpoint.format.piece_rows import leading_dimension
from elasticd.errors import NotSupported
from elasticd.tensors.local_shard import (
    LocalShard,
    common,
    has_replicas,
    local_part,
    memory_of,
    within,
)
from elasticd.tensors.tree import flatten
from elasticd.train.optimizer.sharded_optimizer import barrier
from elasticd.train.save.share_plan import SharePlan
from tests.fixtures.ranks import Cast
from tests.integration.checkpoint_dcp.troupe import Troupe

SIZE = 4

Case = tuple[tuple[int, ...], tuple[int, ...], str]
"""Shape of the whole, shape of the mesh, a word for each dimension of it."""

CASES: dict[str, Case] = {
    "rows": ((8, 3), (4,), "0"),
    "columns": ((3, 8), (4,), "1"),
    "uneven rows": ((10, 3), (4,), "0"),
    "uneven columns": ((2, 7), (4,), "1"),
    "ranks without any": ((2, 3), (4,), "0"),
    "one for one rank": ((5, 1), (4,), "1"),
    "no elements": ((0, 3), (4,), "0"),
    "boxes": ((5, 7), (2, 2), "01"),
    "boxes the other way": ((5, 7), (2, 2), "10"),
    "rows of rows": ((5, 2), (2, 2), "00"),
    "hybrid": ((7, 2), (2, 2), "r0"),
    "hybrid across": ((7, 2), (2, 2), "0r"),
    "hybrid columns": ((2, 7), (2, 2), "r1"),
    "copies": ((3, 2), (2, 2), "rr"),
    "one number": ((), (4,), "r"),
}


class Here(NamedTuple):
    """What one rank says of one tensor."""

    origin: tuple[int, ...]
    values: Any
    is_plain_tensor: bool
    is_first: bool
    written: list[tuple[tuple[int, ...], Any]]
    """Boxes that it brings to a checkpoint."""


def placed(case: Case) -> torch.Tensor:
    """The DTensor of a case; each element is its own number."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    shape, sizes, words = case
    whole = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
    placements = [Replicate() if word == "r" else Shard(int(word)) for word in words]
    found: torch.Tensor = distribute_tensor(whole, init_device_mesh("cpu", sizes), placements)
    return found


def say_all(rank: int) -> dict[str, Here]:
    return {name: _say(rank, placed(case)) for name, case in CASES.items()}


class Recorded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """It notes the names of all operators that torch carries out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def record_operators(rank: int) -> dict[str, tuple[list[str], bool]]:
    """Which operators each case takes, and whether torch says the same of where the box begins."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    found = {}
    for name, case in CASES.items():
        tensor = placed(case)
        assert isinstance(tensor, DTensor)
        with Recorded() as recorded:
            here = local_part(tensor)
        _, origin = compute_local_shape_and_global_offset(
            tensor.shape, tensor.device_mesh, tensor.placements
        )
        found[name] = recorded.names, here.origin == tuple(origin)
    return found


def say_of_half(rank: int) -> list[Here]:
    """Of tensors that only ranks 0 and 1 have."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = DeviceMesh("cpu", [0, 1])
    return [
        _say(rank, distribute_tensor(torch.arange(12.0).reshape(4, 3), mesh, [Shard(0)])),
        _say(rank, distribute_tensor(torch.tensor(5.0), mesh, [Replicate()])),
    ]


def refuse(rank: int) -> list[str]:
    """Placements that are no box."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    mesh = init_device_mesh("cpu", (2, 2))
    said = []
    for placements in ([_StridedShard(0, split_factor=2), Shard(0)], [Partial(), Shard(0)]):
        tensor = DTensor.from_local(torch.ones(2, 3), mesh, placements, run_check=False)
        with pytest.raises(NotSupported) as caught:
            local_part(tensor)
        said.append(str(caught.value))
    return said


def say_who_meets(rank: int) -> list[tuple[bool, bool]]:
    """Of each case, and of an ordinary tensor: has it replicas, and do ranks meet for its sake?"""
    tensors = [*map(placed, CASES.values()), torch.ones(2)]
    said = []
    for tensor in tensors:
        optimizer = torch.optim.SGD([tensor.requires_grad_()])
        call = barrier([optimizer], SIZE)
        if call is not None:
            call()
        assert barrier([optimizer], 1) is None, "nobody is there to be met"
        said.append((has_replicas(tensor), call is not None))
    return said


def compare_structures(rank: int) -> list[bool]:
    """Does the plan of one state still fit others of the same shapes?"""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    line, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2))
    whole = torch.ones(4, 4)
    ways = [
        distribute_tensor(whole, square, [Shard(0), Shard(1)]),
        distribute_tensor(whole, square, [Shard(1), Shard(0)]),
        distribute_tensor(whole, line, [Shard(0)]),
        distribute_tensor(whole, square, [Replicate(), Replicate()]),
        whole,
    ]
    plan = _planned(rank, ways[0])
    return [plan.fits(flatten("state", {"w": way}), [True]) for way in ways]


def _planned(rank: int, tensor: torch.Tensor) -> SharePlan:
    tree = flatten("state", {"w": tensor})
    return SharePlan.of(tree, [True], rank=rank, nodes=[0, 0, 1, 1])


def _say(rank: int, tensor: torch.Tensor) -> Here:
    here = local_part(tensor)
    assert memory_of(tensor).data_ptr() == here.tensor.data_ptr() or not here.tensor.numel()
    written = [
        (piece.offsets, within(here, piece).tolist())
        for part in _planned(rank, tensor).parts
        for piece in part.layout.pieces
    ]
    return Here(here.origin, here.tensor.tolist(), here.is_plain_tensor, here.is_first, written)


@pytest.fixture(scope="module")
def troupe() -> Iterator[Troupe]:
    """Four ranks for all tests of this module."""
    with Cast() as cast:
        yield Troupe(cast, SIZE)


@pytest.fixture(scope="module")
def said(troupe: Troupe) -> list[dict[str, Here]]:
    """What each rank says of each case."""
    return troupe.play(say_all, size=SIZE)


def boxed(shape: tuple[int, ...], boxes: list[tuple[tuple[int, ...], Any]]) -> torch.Tensor:
    """How often each element stands in these boxes, all of which have the right values."""
    count = torch.zeros(shape, dtype=torch.int64)
    whole = torch.arange(count.numel(), dtype=torch.float32).reshape(shape)
    for origin, values in boxes:
        given = torch.tensor(values, dtype=torch.float32)
        if not given.numel():
            continue
        box = tuple(slice(o, o + s) for o, s in zip(origin, given.shape, strict=True))
        assert torch.equal(whole[box], given), f"other values at {origin}"
        count[box] += 1
    return count


@pytest.mark.parametrize("name", CASES)
def test_each_element_is_brought_exactly_once(said: list[dict[str, Here]], name: str) -> None:
    """By all ranks together, however the tensor is spread; values and places are right."""
    written = [box for each in said for box in each[name].written]
    assert (boxed(CASES[name][0], written) == 1).all()


@pytest.mark.parametrize("name", CASES)
def test_ranks_that_are_first_have_the_whole_together(
    said: list[dict[str, Here]], name: str
) -> None:
    """Of what several ranks hold, one is the first."""
    held = [each[name] for each in said]
    assert not any(each.is_plain_tensor for each in held)
    first = [(each.origin, each.values) for each in held if each.is_first]
    assert (boxed(CASES[name][0], first) == 1).all()
    every = [(each.origin, each.values) for each in held]
    copies = 2 ** CASES[name][2].count("r") if CASES[name][1] != (4,) else 4
    assert (boxed(CASES[name][0], every) == (copies if "r" in CASES[name][2] else 1)).all()


def test_box_is_found_without_a_number_for_each_of_its_rows(troupe: Troupe) -> None:
    """It begins where torch says that it does, but no operator makes anything but a view: what
    torch itself makes for this is twice as large as a state that is one long row of numbers."""
    for each in troupe.play(record_operators, size=SIZE):
        for name, (operators, is_equal) in each.items():
            assert is_equal, name
            assert set(operators) <= {"aten.view.default", "aten.detach.default"}, name


def test_ranks_meet_where_another_has_what_one_has(troupe: Troupe) -> None:
    """Replicas of shards, or all of it on each; what nobody else has is lost in any case, and of an
    ordinary tensor one rank is enough."""
    wanted = [("r" in words, "r" in words) for _, _, words in CASES.values()]
    for said in troupe.play(say_who_meets, size=SIZE):
        assert said == [*wanted, (True, False)]


def test_rank_outside_of_a_tensors_mesh_has_nothing_of_it(troupe: Troupe) -> None:
    """And says so in as many dimensions, so that boxes of the whole can be compared with it."""
    heard = troupe.play(say_of_half, size=SIZE)
    rows = [each[0] for each in heard]
    assert [each.origin for each in rows] == [(0, 0), (2, 0), (0, 0), (0, 0)]
    assert [bool(each.values) for each in rows] == [True, True, False, False]
    assert (boxed((4, 3), [box for each in rows for box in each.written]) == 1).all()
    assert [each[1].is_first for each in heard] == [True, False, False, False]
    assert [len(each[1].written) for each in heard] == [1, 0, 0, 0]


def test_placement_that_is_no_box_is_refused_with_a_way_out(troupe: Troupe) -> None:
    """A strided shard looks like a shard, and would be saved as other rows."""
    for said in troupe.play(refuse, size=SIZE):
        for sentence in said:
            assert "no box of the whole" in sentence
            assert "torch.distributed.checkpoint" in sentence


def test_plan_does_not_fit_what_is_spread_otherwise(troupe: Troupe) -> None:
    """Although names, types and shapes are the same, and even the sizes of what is here."""
    for fits in troupe.play(compare_structures, size=SIZE):
        assert fits == [True, False, False, False, False]


# --- ordinary tensors ---------------------------------------------------------------------------


def test_ordinary_tensor_is_here_as_a_whole() -> None:
    """Without a copy, and without its history."""
    parameter = torch.nn.Parameter(torch.rand(2, 3))
    here = local_part(parameter)
    assert here.is_plain_tensor and here.is_first and here.origin == (0, 0)
    assert here.tensor.data_ptr() == parameter.data_ptr() and not here.tensor.requires_grad
    assert memory_of(parameter) is parameter


BOX = st.tuples(st.integers(0, 4), st.integers(0, 4))


@given(st.lists(st.tuples(BOX, BOX), min_size=1, max_size=3))
def test_what_boxes_have_in_common_is_what_both_hold(
    rows: list[tuple[tuple[int, int], tuple[int, int]]],
) -> None:
    """Of any two boxes of a whole, in any number of dimensions, also of empty ones."""
    whole = torch.arange(8 ** len(rows)).reshape([8] * len(rows))
    one = tuple(slice(first, first + size) for (first, size), _ in rows)
    other = tuple(slice(first, first + size) for _, (first, size) in rows)
    part = LocalShard(
        whole[one], tuple(each.start for each in one), is_plain_tensor=False, is_first=True
    )
    offsets = tuple(each.start for each in other)
    pair = common(part, offsets, whole[other].clone())
    wanted = set(whole[one].flatten().tolist()) & set(whole[other].flatten().tolist())
    assert (set() if pair is None else set(pair[0].flatten().tolist())) == wanted
    assert pair is None or torch.equal(*pair)
    piece = Piece(0, offsets, tuple(whole[other].shape), 0, 0)
    found = part.rows_of(3, piece)
    assert (found is not None) is bool(wanted)
    if found is not None:
        along = leading_dimension(piece.shape)
        asked = whole[other].narrow(along, found.first, found.count)
        assert found.piece == 3 and wanted <= set(asked.flatten().tolist())
        for row in range(found.count):
            assert wanted & set(asked.narrow(along, row, 1).flatten().tolist()), "no row too many"
    inner = LocalShard(whole, (0,) * whole.dim(), is_plain_tensor=True, is_first=True)
    assert torch.equal(within(inner, piece), whole[other])
