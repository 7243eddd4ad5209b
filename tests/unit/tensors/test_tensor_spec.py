"""What a checkpoint says of a state, and tensors over memory."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elasticd.checkpoint.format.manifest import DTYPE_BYTES, Piece, Tensor
from elasticd.checkpoint.format.share_layout import laid_out, shares
from elasticd.errors import CallError
from elasticd.tensors.tensor_spec import alike, described, dtype_of, views
from elasticd.tensors.tree import flatten

ODD = torch.empty(2, dtype=torch.uint1)  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", sorted(DTYPE_BYTES))
def test_every_type_of_the_format_comes_and_goes(name: str) -> None:
    """With as many bytes as torch takes for it."""
    kind = getattr(torch, name)
    tensor = torch.zeros(2, 3, dtype=torch.uint8).to(kind)
    (found,) = described(flatten("state", {"a": tensor}))
    assert found == Tensor("state.a", name, (2, 3))
    assert found.nbytes == tensor.nbytes and dtype_of(found) == kind


def test_type_that_has_no_place_is_named_with_its_path() -> None:
    """Before anything is written."""
    with pytest.raises(CallError, match=r"state\.deep\[1\] is of the type uint1"):
        described(flatten("state", {"deep": [1, ODD]}))


def test_two_tensors_of_one_name_are_refused() -> None:
    """They would be loaded from one place; a key with a dot may make one."""
    tree = flatten("state", {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}})
    with pytest.raises(CallError, match=r"state\.a\.b"):
        described(tree)


def test_what_optimizers_own_is_alike_and_nothing_else() -> None:
    """Parameters, also under a second name, and what is kept for them."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    frozen = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.rand(4, 2)).sum().backward()
    optimizer.step()
    entries = {
        "net": net.state_dict(), "tied": net[0].weight, "frozen": frozen.weight,
        "optimizer": optimizer.state_dict(), "best": torch.rand(2),
    }  # fmt: skip
    tree = flatten("s", entries)
    said = dict(zip((each.name for each in described(tree)), alike(tree, [optimizer]), strict=True))
    assert {name for name, is_replicated in said.items() if not is_replicated} == {
        "s.net.1.running_mean", "s.net.1.running_var", "s.net.1.num_batches_tracked", "s.frozen",
        "s.best",
    }  # fmt: skip
    assert any(
        name.startswith("s.optimizer.state")
        for name, is_replicated in said.items()
        if is_replicated
    )


SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@given(st.lists(SHAPES, max_size=5), st.sampled_from(["float32", "bool", "complex128", "bfloat16"]))
def test_views_are_the_memory_itself(shapes: list[tuple[int, ...]], dtype: str) -> None:
    """What is written to one is in the memory, and in none of the others."""
    tensors = [Tensor(str(i), dtype, shape) for i, shape in enumerate(shapes)]
    (slabs,) = shares(tensors, [True] * len(tensors), 1)
    layout = laid_out(tensors, slabs)
    memory = memoryview(bytearray(layout.size))
    found = views(memory, tensors, layout.pieces, layout.starts())
    for turn, each in enumerate(found):
        each.fill_(turn % 2)
    for turn, (each, piece) in enumerate(zip(found, layout.pieces, strict=True)):
        assert tuple(each.shape) == piece.shape and (each == turn % 2).all()
    again = views(memory, tensors, layout.pieces, layout.starts())
    assert all(map(torch.equal, found, again))


def test_view_of_no_elements_needs_no_memory() -> None:
    """Where a piece is empty its place is beyond the end, maybe."""
    tensor, piece = Tensor("e", "int64", (0, 3)), Piece(0, (0, 0), (0, 3), 0, 0)
    (found,) = views(memoryview(b""), [tensor], [piece], [64])
    assert found.shape == (0, 3)


@pytest.mark.parametrize("start", range(17))
def test_piece_is_read_wherever_it_begins(start: int) -> None:
    """The format asks for no alignment; what is aligned is not copied."""
    values = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    memory = memoryview(bytearray(start) + bytearray(values.numpy().tobytes()))
    tensors = (Tensor("a", "float64", (2, 3)),)
    (found,) = views(memory, tensors, [Piece(0, (0, 0), (2, 3), 0, 0)], [start])
    assert torch.equal(found, values) and found.data_ptr() % 8 == 0
    memory[start:] = bytes(48)
    assert torch.equal(found, torch.zeros(2, 3).double() if start % 8 == 0 else values)
