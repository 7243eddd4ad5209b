"""A send that Gloo loses holds nobody: the rank leaves it, lives, and forms the next group."""

import os
import signal
import threading
import time
import weakref
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
WIDTH = 4096
SENT = WIDTH * WIDTH + WIDTH
"""Elements of a linear layer, as one bucket: far more than two sockets take in."""


def formed(rank: int, size: int, port: int, generation: int = 1) -> Group:
    group = Group(entered(rank, size, port, generation), backend="gloo", timeout_s=patience_s(20.0))
    group.form()
    return group


def replicated(group: Any) -> torch.nn.Module:
    """Whose gradients go through this group; None is the default one."""
    layer = torch.nn.Linear(WIDTH, WIDTH)
    return DistributedDataParallel(layer, process_group=group, bucket_cap_mb=1000)


# --- plays: what a rank's process does ------------------------------------------------------------


def receive_and_stop(line: Connection, port: int, what: str) -> None:
    """Take in the beginning of what rank 0 sends, and stop."""
    formed(1, 2, port)
    group = dist.new_group([0, 1]) if "subgroup" in what else None
    if "gradients" in what:
        replicated(group)
    taken = torch.zeros(SENT)
    dist.broadcast(taken, 0, async_op=True, group=group)
    while not taken[0]:
        time.sleep(0)
    os.kill(os.getpid(), signal.SIGSTOP)


def abort_when_told(line: Connection, group: Group) -> None:
    line.recv()
    group.abort()


def send_and_go_on(line: Connection, port: int, what: str) -> None:
    """Be told, in the middle of a send, that this world is over; then be alone."""
    group = formed(0, 2, port)
    threading.Thread(target=abort_when_told, args=(line, group)).start()
    over = dist.new_group([0, 1]) if "subgroup" in what else None
    try:
        if "gradients" in what:
            send_gradients(over)
        elif "buffers" in what:
            send_buffers(over)
        else:
            dist.broadcast(torch.ones(SENT), 0, group=over)
    except RuntimeError:
        line.send("awake")
    group.close()
    again = formed(0, 1, 0, 2)
    alone = torch.ones(3)
    dist.all_reduce(alone)
    again.close()
    line.send(alone.tolist())


def send_gradients(over: Any) -> None:
    """Have torch wait for the send: in an all-reduce it might wait for a receive, which is told."""
    world: Any = over or dist.group.WORLD
    begin = world.begin_broadcast
    world.begin_allreduce = lambda tensors, _: begin(tensors, dist.BroadcastOptions())
    model = replicated(over)  # Its reducer asks the group once.
    model(torch.ones(1, WIDTH)).sum().backward()


def send_buffers(over: Any) -> None:
    """As before each forward pass, where the other ranks take in what rank 0 has."""
    buffers = [torch.ones(SENT), torch.ones(3, dtype=torch.int64)]
    torch_distributed: Any = dist
    torch_distributed._broadcast_coalesced(over or dist.group.WORLD, buffers, 1 << 40, 0)


def send_and_leave(line: Connection, port: int, what: str) -> None:
    """Have a lost send and a receive that fails at once, and take the group down."""
    group = formed(0, 2, port)
    threading.Thread(target=abort_when_told, args=(line, group)).start()
    over = dist.new_group([0, 1]) if "subgroup" in what else None
    dist.broadcast(torch.ones(SENT), 0, async_op=True, group=over)
    told = dist.broadcast(torch.ones(3), 1, async_op=True, group=over)
    queued = dist.broadcast(torch.ones(3), 1, async_op=True, group=over)
    # One of Gloo's two threads has lost its send, the other is in what the script does with a
    # result: so the third waits for its turn, and is done all the same.
    told.get_future().then(lambda _: time.sleep(1.0))
    with pytest.raises(RuntimeError):
        queued.get_future().wait()
    line.send("awake")
    dist.destroy_process_group()
    group.close()
    line.send("closed")


def end_when_told(line: Connection, port: int) -> None:
    """Begin no collective, as a rank that is killed in its backward pass."""
    formed(1, 2, port)
    line.send("formed")
    line.recv()
    os._exit(1)


def scatter_and_go_on(line: Connection, port: int) -> None:
    """Wait in a reduce_scatter, as FSDP2 does, for a rank that ends; then be alone."""
    group = formed(0, 2, port)
    line.send("formed")
    try:
        dist.reduce_scatter(torch.zeros(2), [torch.ones(2), torch.ones(2)])
    except RuntimeError:
        line.send("awake")
    group.abort()
    time.sleep(1.5)  # Longer than it takes until a collective counts as lost.
    line.send([each.name for each in threading.enumerate() if each.name == "elasticd-guard"])
    group.close()
    formed(0, 1, 0, 2).close()
    line.send(gloo_group.kept_count())


# --- tests ----------------------------------------------------------------------------------------


WHATS = [each + over for each in ("tensor", "gradients", "buffers") for over in ("", ", subgroup")]


@pytest.mark.parametrize("what", WHATS)
def test_lost_send_is_left_and_its_process_goes_on(what: str) -> None:
    """A tensor is waited for in Python, gradients and buffers in torch's own code."""
    with Cast() as cast:
        _, port = cast.store()
        sender = cast.start(send_and_go_on, port, what)
        receiver = cast.start(receive_and_stop, port, what)
        receiver.wait_stopped()
        time.sleep(0.2)  # Until the sockets are full, and the rest waits in Gloo.
        receiver.send_signal(signal.SIGKILL)
        sender.tell("the world is over")
        assert sender.hear(PATIENCE_S) == "awake"
        assert sender.hear(PATIENCE_S) == [1.0, 1.0, 1.0]
        assert sender.wait_end(PATIENCE_S) == 0, "what Gloo still waits for holds up nothing"


@pytest.mark.parametrize("what", ["world", "subgroup"])
def test_what_waits_behind_a_lost_send_ends_and_groups_can_be_destroyed(what: str) -> None:
    """By the script too, as many do in a `finally`."""
    with Cast() as cast:
        _, port = cast.store()
        sender = cast.start(send_and_leave, port, what)
        receiver = cast.start(receive_and_stop, port, what)
        receiver.wait_stopped()
        time.sleep(0.2)
        receiver.send_signal(signal.SIGKILL)
        sender.tell("the world is over")
        assert [sender.hear(PATIENCE_S), sender.hear(PATIENCE_S)] == ["awake", "closed"]
        assert sender.wait_end(PATIENCE_S) == 0


def test_reduce_scatter_whose_peer_ends_is_left_at_once_and_nothing_is_kept() -> None:
    """torch hides its work: its group's guard ended with torch's error, and the group stayed."""
    with Cast() as cast:
        _, port = cast.store()
        rank, peer = cast.start(scatter_and_go_on, port), cast.start(end_when_told, port)
        assert [rank.hear(PATIENCE_S), peer.hear(PATIENCE_S)] == ["formed", "formed"]
        peer.tell("end")
        assert rank.hear(PATIENCE_S) == "awake"
        assert rank.hear(PATIENCE_S) == ["elasticd-guard"], "it guards until the group is closed"
        assert rank.hear(PATIENCE_S) == 0, "no group is kept"
        assert rank.wait_end(PATIENCE_S) == 0


def do_what_torch_does(line: Connection, port: int) -> None:
    """Of a group of one; none of it may differ from torch's own class."""
    group = formed(0, 1, 0)
    world: Any = dist.group.WORLD
    line.send((dist.get_backend(), isinstance(world, dist.ProcessGroup), world.size()))
    taken = torch.ones(1000)
    is_held = weakref.ref(taken)
    dist.all_reduce(taken)
    del taken
    # A thread of Gloo's may let go of it a moment after it has said that all is done.
    deadline_s = time.monotonic() + PATIENCE_S
    while is_held() is not None and time.monotonic() < deadline_s:
        time.sleep(0.001)
    line.send(is_held() is None)
    work = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    line.send((work.is_completed(), work.is_success(), [float(each) for each in work.result()]))
    group.close()


def test_wakeable_group_is_to_its_users_what_torch_has() -> None:
    with Cast() as cast:
        rank = cast.start(do_what_torch_does, 0)
        assert rank.hear() == ("gloo", True, 1)
        assert rank.hear() is True, "a collective that is done holds no tensor"
        assert rank.hear() == (True, True, [1.0])
