"""State taken apart is the same state when it is put together again."""

import math
import struct
from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import CallError, Fenced
from elasticd.tensors.tree import Tree, first_difference, flatten, paths, unflatten

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


def typed(value: Any) -> Any:
    """Tell 1 from True and from 1.0, which Python's == does not."""
    if isinstance(value, dict):
        return [(type(key), key, typed(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [typed(item) for item in value]
    return type(value), value


@given(values)
def test_plain_values_come_back_with_their_types(value: Any) -> None:
    assert typed(unflatten(flatten("x", value))) == typed(value)


def test_nan_and_infinity_come_back_bit_by_bit() -> None:
    odd = struct.unpack(">d", bytes.fromhex("7ff800000000beef"))[0]
    back = unflatten(flatten("x", [odd, math.inf, -math.inf, -0.0]))
    assert struct.pack(">d", back[0]).hex() == "7ff800000000beef"
    assert back[1:3] == [math.inf, -math.inf]
    assert math.copysign(1.0, back[3]) == -1.0


def test_an_optimizer_and_a_scheduler_come_back() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5])
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    state: dict[str, Any] = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
    }
    back = unflatten(flatten("state", state))
    model.load_state_dict(back["model"])
    optimizer.load_state_dict(back["optimizer"])
    scheduler.load_state_dict(back["scheduler"])
    assert isinstance(back["scheduler"]["milestones"], Counter)
    assert isinstance(back["model"], OrderedDict)
    versions = getattr(model.state_dict(), "_metadata", None)
    assert versions is not None
    assert getattr(back["model"], "_metadata", None) == versions
    assert back["optimizer"]["state"].keys() == {0, 1, 2, 3}


def test_tensors_are_shared_not_copied() -> None:
    tensor = torch.zeros(3)
    tree = flatten("x", {"a": [tensor]})
    assert tree.tensors[0] is tensor
    assert unflatten(tree)["a"][0] is tensor


def test_types_of_torch_and_numpy_scalars_come_back() -> None:
    value = (torch.bfloat16, torch.device("cuda:1"), torch.Size([2, 3]), np.float32(0.5))
    back = unflatten(flatten("x", value))
    assert back == (torch.bfloat16, torch.device("cuda:1"), torch.Size([2, 3]), 0.5)
    assert type(back[3]) is np.float32 and type(back[2]) is torch.Size


@pytest.mark.parametrize(
    "number",
    [
        np.float32(0.1),
        np.float16("nan"),
        np.float64(-0.0),
        np.int8(-5),
        np.uint64(2**64 - 1),
        np.bool_(True),
        np.str_("a"),
        np.datetime64(5, "ns"),
    ],
)
def test_number_of_numpy_comes_back_as_what_it_was(number: np.generic) -> None:
    """What is computed with an np.float32 rounds otherwise than with a number of Python."""
    back = unflatten(flatten("x", {"a": [1, number], "b": (number,), "c": {1: number}}))
    for one in (back["a"][1], back["b"][0], back["c"][1]):
        assert type(one) is type(number) and one.dtype == number.dtype
        assert one.tobytes() == number.tobytes()
    assert type(back["a"][0]) is int


@pytest.mark.parametrize("dtype", ["<U99999999", "<c16", "O", "<i8,<i8", "no dtype"])
def test_number_of_numpy_that_no_version_writes_is_fenced(dtype: str) -> None:
    with pytest.raises(Fenced):
        unflatten(Tree(f'["x", {{"l": [1], "n": [[0, "{dtype}"]]}}]', ()))


def test_number_that_is_too_large_for_its_dtype_is_fenced() -> None:
    with pytest.raises(Fenced):
        unflatten(Tree('["x", {"l": [300], "n": [[0, "|i1"]]}]', ()))


def test_what_cannot_travel_is_named_by_its_path() -> None:
    class Foo:
        pass

    with pytest.raises(CallError, match=r"state\.scheduler\[1\]\.foo is a .*Foo, which"):
        flatten("state", {"scheduler": [1, {"foo": Foo()}]})
    with pytest.raises(CallError, match=r"state\.x has the key \(1, 2\) of type tuple"):
        flatten("state", {"x": {(1, 2): 3}})
    with pytest.raises(CallError, match=r"state\.x is a tensor without ordinary memory"):
        flatten("state", {"x": torch.eye(2).to_sparse()})


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.zeros(1, dtype=[("a", int)])[0], "x is a numpy.void, which cannot"),
        (np.longdouble(1), "x is a numpy.longdouble, which cannot"),
        (torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "x is a tensor without ord"),
    ],
)
def test_what_would_be_something_else_on_another_rank_is_refused(value: Any, said: str) -> None:
    """A record of numpy would be a tuple there, and a nested tensor has no shape."""
    with pytest.raises(CallError, match=f"state.{said}"):
        flatten("state", {"x": value})


def test_number_that_python_does_not_write_is_refused() -> None:
    assert unflatten(flatten("state", 10**4000)) == 10**4000
    with pytest.raises(CallError, match=r"state has a whole number of more digits"):
        flatten("state", {"x": [10**5000]})


def test_a_loop_ends_with_a_sentence() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CallError, match="holds itself"):
        flatten("state", loop)


def test_first_difference_names_the_line_of_both() -> None:
    one = ("m.a int", "m.w float32 [2]")
    other = ("m.a int", "m.w float32 [3]")
    assert first_difference(one, one) == ""
    assert first_difference(one, other, names=("rank 0", "rank 2")) == (
        "rank 0 has `m.w float32 [2]` where rank 2 has `m.w float32 [3]`."
    )
    assert first_difference(one[:1], one) == ("the other has `m.w float32 [2]`, which one lacks.")


@pytest.mark.parametrize(
    "skeleton", ["", "[]", '["x",{"x":7}]', '["x",{"zz":1}]', '["x",{"d":[1]}]', '["x",{}]']
)
def test_a_skeleton_that_is_not_ours_is_refused(skeleton: str) -> None:
    with pytest.raises(Fenced, match="skeleton cannot be read"):
        unflatten(Tree(skeleton, ()))


def test_names_that_are_kept_are_those_that_the_skeleton_gives() -> None:
    """One and the same tensor may be saved by a rank that knows them and restored by another."""
    one = torch.zeros(1)
    value = {"a": [one, {3: one, "b.c": (one, one)}], "d": OrderedDict(e=one, f={"g": 1})}
    tree = flatten("x", value)
    assert tree.names == paths(Tree(tree.skeleton, tree.tensors))
    assert paths(tree) == ("x.a[0]", "x.a[1].3", "x.a[1].b.c[0]", "x.a[1].b.c[1]", "x.d.e")
