"""DistributedDataParallel over a wakeable group: it does what it does over torch's own."""

import os
import signal
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from elasticd.train.introspection.collective_wait import step_wait
from elasticd.train.process_group.ddp_group import _ReducerGroup, _reducers
from elasticd.train.process_group.gloo_group import WakeableGroup
from elasticd.train.process_group.group import Group
from tests.fixtures.patience import patience_s
from tests.fixtures.ranks import Cast, entered
from tests.fixtures.step_wait import end_step

PATIENCE_S = patience_s(15.0)
STEPS = 4
SENT = 1 << 22
LATE_S = patience_s(1.0)
"""Longer than a rank that is not late may have to wait for a core."""


def formed(rank: int, port: int) -> Group:
    group = Group(entered(rank, 2, port), backend="gloo", timeout_s=patience_s(20.0))
    group.form()
    return group


class Model(torch.nn.Module):
    """With statistics that rank 0 hands out, and a layer that one of the ranks does not use."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = torch.nn.BatchNorm1d(8)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: torch.Tensor, count: int) -> torch.Tensor:
        x = self.norm(x)
        for layer in self.layers[:count]:
            x = layer(x)
        return x.square().mean()


def trained(rank: int, group: Any) -> list[torch.Tensor]:
    """Over this group; None is the default one, whose reducers are given what is made for them."""
    model = Model()
    wrapped = DistributedDataParallel(
        model, process_group=group, find_unused_parameters=True, bucket_cap_mb=1e-4
    )
    assert (type(_reducers.get(wrapped.reducer)) is _ReducerGroup) == (group is None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        optimizer.zero_grad()
        wrapped(torch.randn(6, 8, generator=generator), 1 + (rank + step) % 2).backward()
        optimizer.step()
    return [each.detach().clone() for each in model.state_dict().values()]


# --- plays ----------------------------------------------------------------------------------------


def train_twice(line: Connection, rank: int, port: int) -> None:
    group = formed(rank, port)
    ours = trained(rank, None)
    torch_groups: Any = dist.distributed_c10d
    make = torch_groups._new_process_group_helper
    torch_groups._new_process_group_helper = make.__wrapped__
    plain = dist.new_group([0, 1])
    torch_groups._new_process_group_helper = make
    assert not isinstance(plain, WakeableGroup)
    theirs = trained(rank, plain)
    line.send(all(map(torch.equal, ours, theirs)))
    line.recv()
    group.close()


def send_buffers_and_stop(line: Connection, port: int) -> None:
    """Send a part, for whoever takes it in, and stop."""
    formed(0, port)
    dist.broadcast(torch.ones(SENT), 0, async_op=True)
    line.recv()
    os.kill(os.getpid(), signal.SIGSTOP)


def take_buffers(line: Connection, port: int) -> None:
    """Begin with what rank 0 sends, and wait for another that never comes, until told."""
    group = formed(1, port)
    line.send("formed")

    def abort_when_told() -> None:
        line.recv()
        group.abort()

    threading.Thread(target=abort_when_told).start()
    buffers = [torch.zeros(SENT), torch.zeros(3, dtype=torch.int64)]
    torch_distributed: Any = dist
    try:
        torch_distributed._broadcast_coalesced(dist.group.WORLD, buffers, 1 << 40, 0)
    except RuntimeError as exc:
        line.send(str(exc))
    else:
        line.send("")


def come_late(line: Connection, rank: int, port: int) -> None:
    """Wait for rank 1 in the buffers of one step, and in the gradients of another."""
    group = formed(rank, port)
    wrapped = DistributedDataParallel(Model())
    waits_s = []
    for sleeper in range(2):
        step_wait.begin_generation()
        before_s = step_wait.total_s
        # Which of them comes to this step first is a matter of luck, and no rank's lateness.
        if rank == sleeper:
            group.store.wait([f"waits-{sleeper}"])
            time.sleep(LATE_S)
        else:
            group.store.set(f"waits-{sleeper}", b"")
        wrapped(torch.randn(6, 8), 2).backward()
        step_wait.waited_for_future()
        end_step(step_wait, time.monotonic())
        waits_s.append(step_wait.total_s - before_s)
    line.send(waits_s)
    line.recv()
    group.close()


# --- tests ----------------------------------------------------------------------------------------


def test_ddp_learns_over_it_what_it_learns_over_torchs_own_group() -> None:
    """Parameters and statistics, bit for bit; also where ranks leave out parameters."""
    with Cast() as cast:
        _, port = cast.store()
        ranks = [cast.start(train_twice, rank, port) for rank in range(2)]
        for each in ranks:
            assert each.hear() is True
        for each in ranks:
            each.tell("done")


def test_buffers_that_did_not_come_are_an_error() -> None:
    """Torch's code waits for futures there, which say nothing of how they ended. Gloo tells of the
    peer's end at once, or loses what was asked of a peer that was gone: then the abort ends it."""
    with Cast() as cast:
        _, port = cast.store()
        sender = cast.start(send_buffers_and_stop, port)
        taker = cast.start(take_buffers, port)
        assert taker.hear() == "formed"  # Before that, the sender's end would end its forming.
        sender.tell("stop")
        sender.wait_stopped()
        sender.send_signal(signal.SIGKILL)
        taker.tell("the world is over")
        assert taker.hear(PATIENCE_S) != ""


@pytest.mark.parametrize("sleeper", [0, 1])
def test_wait_for_a_late_rank_counts_as_one(sleeper: int) -> None:
    """For buffers where rank 0 is late, for gradients where another one is."""
    with Cast() as cast:
        _, port = cast.store()
        ranks = [cast.start(come_late, rank, port) for rank in range(2)]
        waits_s = [each.hear() for each in ranks]
        for each in ranks:
            each.tell("done")
        assert waits_s[1 - sleeper][sleeper] > waits_s[sleeper][sleeper] + LATE_S / 2
