"""A checkpoint of another model is told by the names of what differs."""

from typing import Any

import pytest
import torch

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.tensors.tensor_spec import described
from elasticd.tensors.tree import flatten
from elasticd.train.restore.model_match import NAMES_LIMIT, CannotRestore, matched

SNAPSHOT = Snapshot(run=1, generation=2, step=3)


def match(own: dict[str, Any], other: dict[str, Any]) -> list[torch.Tensor | None]:
    """Match the tensors of a checkpoint of `other`."""
    return matched(flatten("s", own), described(flatten("s", other)), SNAPSHOT)


def test_tensors_are_found_by_name_in_the_order_of_the_checkpoint() -> None:
    """And share the memory of what is here, also of a parameter."""
    one, two = torch.zeros(2), torch.nn.Parameter(torch.zeros(3))
    found = match({"one": one, "two": two}, {"two": torch.ones(3), "one": torch.ones(2)})
    assert found[0] is not None and found[0].data_ptr() == two.data_ptr()
    assert found[1] is not None and found[1].data_ptr() == one.data_ptr()
    assert not found[0].requires_grad


def test_what_only_the_checkpoint_has_is_left_out() -> None:
    """An optimizer that has not stepped yet has no state."""
    assert match({}, {"one": torch.ones(2)}) == [None]


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        (torch.zeros(2), torch.zeros(3), "s.a is float32 [3] in the checkpoint and float32 [2]"),
        (torch.zeros(2), torch.zeros(2).int(), "s.a is int32 [2] in the checkpoint and float32"),
        (torch.zeros(2), None, "s.a is not in the checkpoint"),
    ],
)
def test_what_differs_is_named_with_both_sides(here: Any, there: Any, said: str) -> None:
    """And with what to do about it."""
    with pytest.raises(CannotRestore) as caught:
        match({"a": here}, {"a": there})
    assert said in str(caught.value)
    assert "step 3 (run 1, generation 2)" in str(caught.value)
    assert "--checkpoint" in str(caught.value)


def test_first_ten_are_named_and_the_others_counted() -> None:
    """A model of a thousand layers is told in a few lines."""
    with pytest.raises(CannotRestore) as caught:
        match({f"n{i:02}": torch.zeros(1) for i in range(25)}, {})
    said = str(caught.value)
    assert said.count("is not in the checkpoint") == NAMES_LIMIT == 10
    assert "n09" in said and "n10" not in said and ", and 15 more." in said
