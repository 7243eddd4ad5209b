"""NCCL with one rank: aborted from another thread, and made and left fifty times without a leak."""

import gc
import os
import threading
import time

import pytest
import torch
import torch.distributed as dist

from elasticd.train.group_broken import GroupBroken
from elasticd.train.process_group import nccl
from elasticd.train.process_group.group import Group
from tests.fixtures.ranks import entered
from tests.gpu.card import CARD, PATIENCE_S, note, spin

GENERATIONS = 50
ALLOWED_BYTES = 64 << 20
"""Of the device's memory, for what libraries keep once."""


@pytest.fixture(autouse=True)
def environment() -> None:
    """As `elasticd.run` has it."""
    nccl.prepare(os.environ)
    torch.cuda.set_device(CARD)


def formed(generation: int) -> Group:
    entry = entered(0, 1, 0, generation)
    group = Group(entry, device=CARD, timeout_s=PATIENCE_S, env=os.environ)
    group.form()
    return group


def test_group_is_formed_used_and_left() -> None:
    """Its communicator is there before the first collective of the script."""
    began_s = time.monotonic()
    group = formed(1)
    note("NCCL, world of 1: form", time.monotonic() - began_s, "s")
    tensor = torch.ones(1 << 20, device=CARD)
    dist.all_reduce(tensor)
    group.synchronize(lambda: True)
    assert float(tensor.sum()) == 1 << 20
    began_s = time.monotonic()
    group.close()
    note("NCCL, world of 1: planned end", time.monotonic() - began_s, "s")
    assert not dist.is_initialized()


def test_abort_from_another_thread_ends_a_wait() -> None:
    """While kernels are queued behind the collective."""
    group = formed(1)
    spin(2.0)
    dist.all_reduce(torch.ones(1 << 20, device=CARD))
    began_s = time.monotonic()
    threading.Timer(0.1, group.abort).start()
    with pytest.raises(GroupBroken):
        group.synchronize(lambda: True)
    assert time.monotonic() - began_s < 1.5, "it did not wait for the kernels"
    group.close()
    note("NCCL, world of 1: abort", time.monotonic() - began_s, "s")
    torch.cuda.synchronize(CARD)


def test_script_s_own_groups_go_with_the_abort() -> None:
    """Two communicators of one process, aborted at once."""
    group = formed(1)
    own = dist.new_group([0])
    dist.all_reduce(torch.ones(1, device=CARD), group=own)
    group.close()
    again = formed(2)
    again.close()


def in_use() -> tuple[int, int, int]:
    """The device's memory, open descriptors and threads."""
    gc.collect()
    torch.cuda.synchronize(CARD)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(CARD)
    return total - free, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def test_fifty_generations_leave_nothing() -> None:
    """In one process, each with a collective."""
    for generation in range(1, 4):
        formed(generation).close()
    before = in_use()
    began_s = time.monotonic()
    for generation in range(4, 4 + GENERATIONS):
        group = formed(generation)
        dist.all_reduce(torch.ones(1024, device=CARD))
        group.synchronize(lambda: True)
        group.close()
    note("NCCL, world of 1: a generation", (time.monotonic() - began_s) / GENERATIONS, "s")
    after = in_use()
    note("NCCL: memory after 50 generations", (after[0] - before[0]) / (1 << 20), "MiB more")
    assert after[0] - before[0] <= ALLOWED_BYTES
    assert after[1] <= before[1] + 3 and after[2] <= before[2] + 3
