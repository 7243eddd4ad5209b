"""What a rank knows of a step's collectives when another rank's connection has ended."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from elasticd.train.process_group import gloo_group
from elasticd.train.process_group.group import Group
from tests.fixtures.patience import patience_s
from tests.fixtures.ranks import Cast, entered

PATIENCE_S = patience_s(15.0)
LARGE = 1 << 22

Step = Callable[[], None]


def backward() -> Step:
    """The all-reduce of DDP's own code, and the buffers before it."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64))
    wrapped = DistributedDataParallel(model)
    return lambda: wrapped(torch.randn(4, 64)).sum().backward()


def all_reduce() -> Step:
    return lambda: dist.all_reduce(torch.ones(LARGE))


def all_reduce_of_no_interest() -> Step:
    """Nobody waits for its result, so nobody is told how it ended."""
    return lambda: dist.all_reduce(torch.ones(LARGE), async_op=True) and None


def all_reduce_in_a_group_of_the_script() -> Step:
    group = dist.new_group([0, 1])
    return lambda: dist.all_reduce(torch.ones(LARGE), group=group)


STEPS = {
    each.__name__: each
    for each in (backward, all_reduce, all_reduce_of_no_interest)
} | {"own group": all_reduce_in_a_group_of_the_script}  # fmt: skip


# --- plays ----------------------------------------------------------------------------------------


def formed(rank: int, port: int) -> Group:
    group = Group(entered(rank, 2, port), backend="gloo", timeout_s=patience_s(20.0))
    group.form()
    return group


def synchronize() -> None:
    """Wait for what nobody waited for, and say that we are done."""
    dist.barrier()


def leave_after_a_step(line: Connection, port: int, name: str) -> None:
    formed(1, port)
    step = STEPS[name]()
    step()
    synchronize()
    line.send("done")
    line.recv()
    os._exit(1)


def go_on_alone(line: Connection, port: int, name: str) -> None:
    """Say what is known after a step with the other, when it is gone, and after one without."""
    group = formed(0, port)
    step = STEPS[name]()
    step()
    synchronize()
    line.send(group.has_all_results())
    line.recv()
    until_s = time.monotonic() + PATIENCE_S
    while not group.has_ended() and time.monotonic() < until_s:
        time.sleep(0.005)
    line.send((group.has_ended(), group.has_all_results()))
    with suppress(RuntimeError):
        step()
    line.send(group.has_all_results())
    group.abort()
    line.send(group.has_all_results())


def go_on_alone_where_lazy(line: Connection, port: int) -> None:
    """As above, in an environment in which Gloo connects in the first collective."""
    os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
    gloo_group.prepare(os.environ)
    go_on_alone(line, port, "backward")


def send_once(line: Connection, rank: int, port: int) -> None:
    group = formed(rank, port)
    tensor: Any = torch.ones(3)
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    line.send(group.has_all_results())
    line.recv()
    group.close()


# --- tests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STEPS)
def test_step_with_a_rank_that_ends_after_it_is_whole_and_the_next_is_not(name: str) -> None:
    """Whoever swallowed the error."""
    with Cast() as cast:
        _, port = cast.store()
        other = cast.start(leave_after_a_step, port, name)
        rank = cast.start(go_on_alone, port, name)
        assert other.hear() == "done"
        assert rank.hear() is True
        other.tell("end")
        rank.tell("wait for its end")
        assert rank.hear() == (True, True)
        assert rank.hear() is False
        assert rank.hear() is False


def test_rank_that_is_gone_is_noticed_where_gloo_was_asked_to_connect_late() -> None:
    """A connection that is made after the group is not among those that are looked at."""
    with Cast() as cast:
        _, port = cast.store()
        other = cast.start(leave_after_a_step, port, "backward")
        rank = cast.start(go_on_alone_where_lazy, port)
        assert other.hear() == "done"
        assert rank.hear() is True
        other.tell("end")
        rank.tell("wait for its end")
        assert rank.hear() == (True, True)


def test_what_is_sent_from_rank_to_rank_is_in_doubt() -> None:
    """Nobody watches it."""
    with Cast() as cast:
        _, port = cast.store()
        ranks = [cast.start(send_once, rank, port) for rank in range(2)]
        assert [each.hear() for each in ranks] == [False, False]
        for each in ranks:
            each.tell("done")
