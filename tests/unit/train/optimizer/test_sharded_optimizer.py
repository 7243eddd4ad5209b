"""Room for the state of a sharded optimizer, made without changing anything."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from elasticd.train.optimizer import sharded_optimizer
from elasticd.train.optimizer.sharded_optimizer import barrier, is_sharded, make_room

OPTIMIZERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.5),
    lambda parameters: torch.optim.Adam(parameters, lr=0.1, weight_decay=0.5),
    lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.5, amsgrad=True),
    lambda parameters: torch.optim.RMSprop(parameters, lr=0.1, weight_decay=0.5, momentum=0.9),
    lambda parameters: torch.optim.Adagrad(parameters, lr=0.1, weight_decay=0.5),
    lambda parameters: torch.optim.RAdam(parameters, lr=0.1, weight_decay=0.5),
]


def test_ordinary_parameters_are_not_sharded() -> None:
    """And their optimizers are left as they are: others have the state."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])
    assert not is_sharded([optimizer])
    make_room([optimizer])
    assert not optimizer.state


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_room_is_made_without_changing_a_parameter(
    make: Callable[[Any], torch.optim.Optimizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state has the tensors that a real step would make; rates and gradients are as before."""
    monkeypatch.setattr(sharded_optimizer, "is_sharded", lambda optimizers: True)
    parameters = [torch.nn.Parameter(torch.randn(3, 2)) for _ in range(2)]
    before = [parameter.clone() for parameter in parameters]
    optimizer, other = make(parameters), make([torch.nn.Parameter(torch.randn(3, 2))])
    groups = [dict(group) for group in optimizer.param_groups]
    make_room([optimizer])
    assert all(map(torch.equal, parameters, before))
    assert all(parameter.grad is None for parameter in parameters)
    assert [
        {k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups
    ] == [{k: v for k, v in group.items() if k != "params"} for group in groups]
    other.param_groups[0]["params"][0].grad = torch.ones(3, 2)
    other.step()
    (wanted,) = other.state.values()
    for parameter in parameters:
        kept = optimizer.state[parameter]
        assert kept.keys() == wanted.keys()
        assert all(kept[name].shape == wanted[name].shape for name in kept if name != "step")


def test_state_that_is_there_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is going to be filled in its place."""
    monkeypatch.setattr(sharded_optimizer, "is_sharded", lambda optimizers: True)
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([parameter])
    parameter.grad = torch.ones(2)
    optimizer.step()
    kept = optimizer.state[parameter]["exp_avg"]
    make_room([optimizer])
    assert optimizer.state[parameter]["exp_avg"] is kept


def test_step_that_fails_leaves_the_rates_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that wants a closure, say: its error is the script's, its learning rate stays."""
    monkeypatch.setattr(sharded_optimizer, "is_sharded", lambda optimizers: True)
    optimizer = torch.optim.LBFGS([torch.nn.Parameter(torch.ones(2))], lr=0.5)
    with pytest.raises(TypeError, match="closure"):
        make_room([optimizer])
    assert optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize(
    ("size", "is_plain_tensor", "has_replicas", "meets"),
    [
        pytest.param(4, False, True, True, id="shards with replicas"),
        pytest.param(4, False, False, False, id="shards that one rank has each"),
        pytest.param(4, True, True, False, id="each rank has all of it"),
        pytest.param(1, False, True, False, id="a rank that is alone"),
    ],
)
def test_ranks_meet_before_a_step_only_where_another_has_each_shard(
    size: int,
    is_plain_tensor: bool,
    has_replicas: bool,
    meets: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is a collective of all ranks for each step, and helps nobody else."""
    part = SimpleNamespace(is_plain_tensor=is_plain_tensor)
    monkeypatch.setattr(sharded_optimizer, "local_part", lambda tensor: part)
    monkeypatch.setattr(sharded_optimizer, "has_replicas", lambda tensor: has_replicas)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))])
    assert (barrier([optimizer], size) is not None) is meets


def test_ranks_meet_at_a_barrier_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A barrier takes rounds by the logarithm of the ranks; NCCL's would wait for the GPU."""
    devices, waited = [], []

    def record_barrier(options: dist.BarrierOptions) -> SimpleNamespace:
        devices.append(options.device)
        return SimpleNamespace(wait=lambda: waited.append(True))

    world = SimpleNamespace(barrier=record_barrier)
    monkeypatch.setattr(dist, "group", SimpleNamespace(WORLD=world))
    part = SimpleNamespace(is_plain_tensor=False)
    monkeypatch.setattr(sharded_optimizer, "local_part", lambda tensor: part)
    monkeypatch.setattr(sharded_optimizer, "has_replicas", lambda tensor: True)
    meet = barrier([torch.optim.SGD([torch.nn.Parameter(torch.ones(2))])], size=4)
    assert meet is not None
    meet()
    assert devices == [torch.device("cpu")]
    assert waited == [True]
