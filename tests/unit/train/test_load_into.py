"""`load(into=...)`: every leaf is the checkpoint's afterwards, or nothing was touched."""

import copy
from collections import Counter, OrderedDict
from typing import Any

import pytest
import torch

from elasticd.tensors.tensor_spec import described
from elasticd.tensors.tree import Tree, flatten, unflatten
from elasticd.train.load_into import check_fits, fill
from elasticd.train.restore.model_match import CannotRestore, matched
from tests.unit.train.restore.restore_case import snapshot_of
from tests.unit.train.save.save_case import same


def put_into(into: dict[str, Any], stored: Any) -> None:
    """What `load` does, with the storage in this process."""
    tree = flatten("state", stored)
    own = flatten("state", into)
    places = matched(own, described(tree), snapshot_of(5))
    tensors = tuple(torch.empty(0) if each is None else each for each in places)
    found = unflatten(Tree(tree.skeleton, tensors))
    check_fits("state", into, found, snapshot_of(5))
    with torch.no_grad():
        for place, tensor in zip(places, tree.tensors, strict=True):
            if place is not None:
                place.copy_(tensor)
    fill(into, found)


def trained(steps: int) -> dict[str, Any]:
    """The state of a usual script: its optimizer and scheduler have gone so many steps."""
    torch.manual_seed(steps)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3], 0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        scheduler.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "epoch": steps,
        "best": {"loss": 1.0 / steps} if steps > 1 else None,
        "losses": [float(step) for step in range(steps - 1)],
    }


def test_everything_is_the_checkpoints_afterwards() -> None:
    """Learning rate, scheduler and epoch too: the script had just built those of its beginning."""
    into, stored = trained(1), trained(5)
    assert not same(into, stored)
    put_into(into, stored)
    assert same(into, stored)
    assert into["optimizer"]["param_groups"][0]["lr"] == 0.1 * 0.5 * 0.5
    assert into["scheduler"]["last_epoch"] == into["epoch"] == 5


def test_containers_and_tensors_stay_the_scripts_own() -> None:
    """Who holds a part of the state sees it filled."""
    into, stored = trained(1), trained(5)
    weight, optimizer, losses = into["model"]["weight"], into["optimizer"], into["losses"]
    group = optimizer["param_groups"][0]
    put_into(into, stored)
    assert into["model"]["weight"] is weight and torch.equal(weight, stored["model"]["weight"])
    assert into["optimizer"] is optimizer and optimizer["param_groups"][0] is group
    assert into["losses"] is losses == [0.0, 1.0, 2.0, 3.0]


def test_tuples_with_tensors_are_made_anew_around_the_same_tensors() -> None:
    """What cannot be changed in place is replaced in what holds it."""
    held = torch.zeros(2)
    into: dict[str, Any] = {"pair": (held, 1, [0])}
    put_into(into, {"pair": (torch.ones(2), 7, [1, 2])})
    assert into["pair"][0] is held and torch.equal(held, torch.ones(2))
    assert into["pair"][1:] == (7, [1, 2])


def test_kinds_of_dict_and_plain_values_come_as_they_were_saved() -> None:
    """A value of another kind takes the place of the one that stood there."""
    into: dict[str, Any] = {
        "a": None,
        "b": {"x": 1},
        "c": 1,
        "d": [],
        "e": (1,),
        "f": torch.Size([1]),
    }
    stored = {"a": OrderedDict(k=1), "b": {"x": 2, "y": [3]}, "c": Counter([5, 5]), "d": (1, 2),
              "e": [1, {"k": None}], "f": torch.Size([2, 3])}  # fmt: skip
    put_into(into, stored)
    assert into == stored and [type(each) for each in into.values()] == [
        type(each) for each in stored.values()
    ]


def test_topmost_names_that_were_not_asked_for_stay_away() -> None:
    """A script that evaluates wants the model alone."""
    stored = trained(5)
    into = {"model": trained(1)["model"]}
    put_into(into, stored)
    assert list(into) == ["model"] and same(into["model"], stored["model"])


DIFFERENT: list[tuple[Any, Any, str]] = [
    ({"o": {"state": {}}}, {"o": {"state": {0: torch.ones(1)}}},
     r"state\.o\.state\.0 is in the checkpoint and not here \(an optimizer has its state after"),
    ({"o": {"state": {}}}, {"o": {"state": {0: {"m": [torch.ones(1)]}}}},
     r"state\.o\.state\.0 is in the checkpoint and not here"),
    ({"a": [torch.ones(1)]}, {"a": [torch.ones(1), torch.ones(1)]},
     r"state\.a is a list of 2 in the checkpoint and a list of 1 here"),
    ({"a": 1}, {"a": torch.ones(1)}, r"state\.a is a tensor in the checkpoint and an int here"),
    ({"a": {"b": None}}, {"a": {"b": [torch.ones(1)]}},
     r"state\.a\.b is a list of 1 in the checkpoint and None here"),
    ({"epoch": 1}, {"step": 1}, r"state\.epoch is not in the checkpoint"),
    ({"a": {"epoch": 1}}, {"a": {"step": 1}}, r"state\.a\.epoch is not in the checkpoint"),
]  # fmt: skip


@pytest.mark.parametrize(("into", "stored", "said"), DIFFERENT)
def test_other_containers_are_refused_before_anything_is_changed(
    into: dict[str, Any], stored: Any, said: str
) -> None:
    """By the path, and what stands where."""
    into = {"w": torch.zeros(2), "n": 0, **into}
    before = copy.deepcopy(into)
    with pytest.raises(CannotRestore, match=said):
        put_into(into, {"w": torch.ones(2), "n": 1, **stored})
    assert same(into, before)


def test_checkpoint_that_is_no_dict_is_refused() -> None:
    """`State` may have saved it."""
    with pytest.raises(CannotRestore, match="state is a list of 1 in the checkpoint and a dict"):
        put_into({}, [1])
