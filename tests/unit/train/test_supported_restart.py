"""The column "restart mode" of docs/supported.md: each of its rows is a test here.

In restart mode a script runs as under torchrun, and `elasticd.checkpoint` keeps the values that it
is given. So a row is shown by what `save` keeps or refuses, or by torch being as it is without
elasticd: then a script does what it does without us, its own saving included.
"""

import copy
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from elasticd.tensors.tree import flatten
from elasticd.train.save_and_load import save
from elasticd.train.state.state import core_of
from tests.unit.train.optimizer.test_unsupported import CANNOT_TRAVEL, Wrapped
from tests.unit.train.state.state_case import CASES, Case, averaged, model, train
from tests.unit.train.state.test_optimizer_load import Mixed
from tests.unit.train.test_save_and_load import Node, node
from tests.unit.train.test_supported import OWN, ROWS, Aside, Row, Works, matrices, shown

__all__ = ["node"]

Check = Callable[[Node], str]
"""Shows a row; returns what `save` has to have said."""


# --- ways to show it ----------------------------------------------------------------------------


def saved(node: Node, value: dict[str, Any]) -> dict[str, Any]:
    """What `elasticd.checkpoint.save` has kept of it."""
    assert save(value, len(node.keeper.taken) + 1)
    kept: dict[str, Any] = node.keeper.state(node.keeper.taken[-1])
    return kept


def dicts_of(case: Case) -> dict[str, Any]:
    """What a script of its own would save of these objects and values."""
    state, _ = case
    return {n: each.state_dict() for n, each in core_of(state).objects.items()} | dict(
        core_of(state).values
    )


def is_same(one: Any, other: Any) -> bool:
    """Bit for bit, in the same containers."""
    first, second = flatten("state", one), flatten("state", other)
    return first.skeleton == second.skeleton and all(
        map(torch.equal, first.tensors, second.tensors)
    )


def comes_back(*makes: Callable[[], Case]) -> Check:
    """What was trained is saved as state dicts, and a process that loads them has all of it."""

    def check(node: Node) -> str:
        for make in makes:
            trained, fresh = make(), make()
            train(trained)
            kept = saved(node, dicts_of(trained))
            for name, each in core_of(fresh[0]).objects.items():
                each.load_state_dict(copy.deepcopy(kept[name]))
            loaded = dicts_of(fresh) | {name: kept[name] for name in core_of(fresh[0]).values}
            assert is_same(loaded, dicts_of(trained))
        return ""

    return check


def kept(*values: Any) -> Check:
    def check(node: Node) -> str:
        for value in values:
            assert is_same(saved(node, {"value": value}), {"value": value})
        return ""

    return check


def not_kept(value: Any, said: str) -> Check:
    """The script is told, and trains on."""

    def check(node: Node) -> str:
        assert not save({"value": value}, 1)
        assert not node.keeper.taken
        return said

    return check


def lacks(make: Callable[[], tuple[Any, Any]], part: Callable[[Any], Any]) -> Check:
    """The state dict of the first does not bring a part of it to the second."""

    def check(node: Node) -> str:
        one, other = make()
        other.load_state_dict(saved(node, {"value": one.state_dict()})["value"])
        assert part(one) != part(other)
        return ""

    return check


def by(*tests: str) -> Check:
    def check(node: Node) -> str:
        shown(*tests)()
        return ""

    return check


AS_WITHOUT_US = by(
    "unit/train/test_supported_restart.py::test_nothing_of_torch_is_changed_in_restart_mode",
    "integration/test_torchrun.py::test_script_sees_what_it_sees_under_torchrun",
)
"""elasticd has no part in what the script does there."""


def nothing(node: Node) -> str:
    """The page says that it was never tried."""
    return ""


def attributes() -> tuple[Any, Any]:
    one, other = (torch.nn.Linear(1, 1) for _ in range(2))
    for each, warmth in ((one, 0.5), (other, 1.0)):
        setattr(each, "warmth", warmth)  # noqa: B010
    return one, other


def modes() -> tuple[Any, Any]:
    pair = model(), model()
    pair[0].eval()
    return pair


def buffers() -> tuple[Any, Any]:
    one, other = torch.nn.Module(), torch.nn.Module()
    for each, seen in ((one, torch.zeros(1)), (other, torch.ones(1))):
        each.register_buffer("seen", seen, persistent=False)
    return one, other


def lazy(node: Node) -> str:
    """After its first batch it is like any other, also for a new one that has had none."""
    trained, fresh = torch.nn.LazyLinear(2), torch.nn.LazyLinear(2)
    trained(torch.ones(1, 3))
    fresh.load_state_dict(saved(node, {"value": trained.state_dict()})["value"])
    assert is_same(fresh.state_dict(), trained.state_dict())
    return ""


def types_of_its_own(node: Node) -> str:
    """They are kept as they are; what torch loads has the parameters' type."""
    trained, fresh = (matrices(Mixed)() for _ in range(2))
    train(trained)
    value = dicts_of(trained)["optimizer"]
    again = saved(node, {"value": value})["value"]
    assert is_same(again, value)
    fresh[0].optimizer.load_state_dict(copy.deepcopy(again))
    assert not is_same(fresh[0].optimizer.state_dict(), value)
    return ""


def moments() -> tuple[Any, Any]:
    pair = matrices(Aside)(), matrices(Aside)()
    train(pair[0], steps=2)
    return pair[0][0].optimizer, pair[1][0].optimizer


_FOREIGN = by(
    "integration/test_foreign_script.py::test_accelerates_own_script_is_killed_and_recovers"
)
_SHARED = torch.ones(2)

CHECKS: dict[str, Check] = {
    "several, back to back": comes_back(CASES["two optimizers"][0]),
    "two with the same parameter groups": by(
        "unit/train/state/test_shared_groups.py::"
        "test_script_that_loads_by_itself_has_to_share_them_again"),
    "one that keeps its moments in attributes": lacks(moments, lambda each: each.aside[0].tolist()),
    "numbers and tensors that are plain attributes": lacks(attributes, lambda each: each.warmth),
    "buffers with `persistent=False`": lacks(buffers, lambda each: each.seen.item()),
    "`eval()`, `requires_grad`": lacks(modes, lambda each: each.training),
    "an averaged model (EMA)": comes_back(averaged),
    "FSDP2 (`fully_shard`) over all ranks": by(
        "integration/train/test_checkpoint_restart.py::"
        "test_killed_script_goes_on_where_it_was_saved",
        "integration/train/test_restoring.py::test_load_fills_dtensors_of_any_placement"),
    "FSDP2 with frozen parameters": by(
        "integration/train/test_restoring.py::test_load_fills_dtensors_of_any_placement"),
    "DistributedDataParallel, built in `train`": by(
        "integration/train/test_checkpoint_restart.py::"
        "test_killed_script_goes_on_where_it_was_saved"),
    "modules whose shapes come with the first batch": lazy,
    "state in types of its own": types_of_its_own,
    "tensors of a class of their own": not_kept(
        torch.Tensor._make_wrapper_subclass(Wrapped, (2,)), "memory is its own affair"),
    "sparse and quantised tensors": not_kept(torch.eye(2).to_sparse(), "without ordinary memory"),
    "numbers, text, None, dense tensors": kept(
        [1, (2.0, "x", None)], {"t": torch.ones(1), 1: True}),
    "one tensor as two values": kept([_SHARED, _SHARED]),
    "other keys than text and whole numbers": by(
        "unit/train/test_supported_restart.py::"
        "test_what_no_process_may_send_is_not_saved_either"),
    "a value that requires a gradient": kept(torch.nn.Parameter(torch.ones(2))),
    "a value with the graph of a backward pass": kept(torch.ones(2, requires_grad=True) * 2),
    "a value in the memory of an optimizer's state": kept([_SHARED, _SHARED]),
    "one list or dict as two values": kept([[1], [1]]),
    "Lightning, Hugging Face's Trainer, accelerate": _FOREIGN,
    "CUDA": nothing, "ROCm": nothing, "XPU, MPS and others": nothing,
    "another transport of Gloo than TCP (GLOO_DEVICE_TRANSPORT)": nothing,
}  # fmt: skip


def check_of(row: Row) -> Check:
    named = [check for what, check in CHECKS.items() if row.what.startswith(what)]
    assert len(named) <= 1, row.what
    if named:
        return named[0]
    if isinstance(row.check, Works) and row.restart != OWN:
        return comes_back(*row.check.makes)
    return AS_WITHOUT_US


# --- the tests ----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_row_is_true_in_restart_mode(
    row: Row, node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """See `check_of` for what shows it."""
    said = check_of(row)(node)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", CANNOT_TRAVEL)
def test_what_no_process_may_send_is_not_saved_either(
    name: str, node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """The row of values that says no in both columns."""
    assert not save({"value": CANNOT_TRAVEL[name][0]}, 1)
    assert "state.value" in capsys.readouterr().err


def test_each_name_is_that_of_a_row() -> None:
    """A row that got another name would be shown by less than before."""
    for what in CHECKS:
        assert [row.what for row in ROWS if row.what.startswith(what)], what


ASKS = """
import sys, torch, torch.distributed as dist, torch.utils.data as data
from torch.nn.parallel import DistributedDataParallel

PLACES = [
    torch, torch.Tensor, torch.autograd, torch.cuda, torch.nn.Module, torch.optim.Optimizer,
    torch.optim.SGD, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler, dist,
    dist.distributed_c10d, DistributedDataParallel, data.DataLoader, data.IterableDataset,
    data.distributed.DistributedSampler,
]

def all_of():
    return [dict(vars(place)) for place in PLACES]

before = all_of()
import elasticd, elasticd.checkpoint
from elasticd.errors import CallError

for call in (elasticd.checkpoint.load, lambda: elasticd.checkpoint.save({}, 1)):
    try:
        call()
    except CallError:
        continue
    raise SystemExit("there is no keeper")
after = all_of()
for place, one, other in zip(PLACES, before, after):
    changed = [n for n in one if n not in other or other[n] is not one[n]]
    assert not changed, (place, changed)
optimizer = sys.modules["torch.optim.optimizer"]
assert not optimizer._global_optimizer_pre_hooks
assert not optimizer._global_optimizer_post_hooks
assert not torch.nn.modules.module._global_forward_hooks
assert not torch.nn.modules.module._global_backward_hooks
print("as it was")
"""


def test_nothing_of_torch_is_changed_in_restart_mode() -> None:
    """Optimizers, modules, loaders and groups are torch's own, and so is what libraries add."""
    done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True)
    assert done.stdout == "as it was\n", done.stderr
