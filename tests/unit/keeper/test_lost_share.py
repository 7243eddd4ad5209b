"""A share that was lost with its process: a restore does not wait for it, where that is certain."""

import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.committer import CommitOutcome
from elasticd.checkpoint.format.layout import fragment_name
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.errors import Unavailable
from elasticd.keeper import saver as saver_module
from elasticd.keeper.checkpoint_finder import CheckpointFinder
from elasticd.keeper.client import Client
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.service import Service
from elasticd.keeper.wire import message as ms
from tests.fixtures.cluster import until
from tests.unit.checkpoint.meddling import Meddling
from tests.unit.keeper.site import PATIENCE_S, Node, a_plan, a_snapshot, committed

FIRST, SECOND = a_plan(0, 2), a_plan(1, 2)
OLDER, MADE = a_snapshot(10), a_snapshot(20)
RESTART_S = 300.0
"""How long rank 0 of a generation that begins waits for what is being saved."""
NOTE = "The checkpoint of step 20 could not be saved: A process ended before its part was whole."


def a_node(folder: Path, before: Callable[[str, str], None] = lambda verb, name: None) -> Node:
    """A keeper of the only node, with a checkpoint of two workers."""
    node = Node(Meddling(FolderBucket(str(folder)), before))
    node.is_on_one_node = True
    node.committer.open(1, 0)
    node.take(OLDER, FIRST, worker=1)
    node.take(OLDER, SECOND, worker=2)
    assert node.saver.wait(OLDER, PATIENCE_S) is not None
    return node


def waited(node: Node, limit_s: float, generation: int) -> bool:
    """Return whether the whole limit was waited for."""
    began_s = time.monotonic()
    node.saver.wait_idle(limit_s, generation)
    return time.monotonic() - began_s >= limit_s


class Worker:
    """A worker of the only node, over the keeper's socket."""

    def __init__(self, name: str, plan: ms.Plan) -> None:
        self.client, self.plan = Client(name), plan
        self.client.ask(ms.Plans(plans=(plan,)), ms.Done, timeout_s=PATIENCE_S)
        self._known: list[SharedMemory] = []

    def take(self, step: int) -> None:
        said, memory = self.client.ask_memory(ms.Claim(plan=self.plan.id), ms.Claimed)
        self._known += [memory] if memory is not None else []
        self._known[said.buffer].view[:] = bytes([step]) * self._known[said.buffer].size
        question = ms.SaveSnapshot(
            plan=self.plan.id, buffer=said.buffer, snapshot=a_snapshot(step), epoch=0,
            world_size=2, skeleton="{}", is_on_one_node=True,
        )  # fmt: skip
        self.client.ask(question, ms.Done, timeout_s=PATIENCE_S)


def test_restore_takes_the_older_checkpoint_at_once(tmp_path: Path) -> None:
    """One worker was killed in the middle of a save; the next generation asks, over the socket."""
    node = Node(FolderBucket(str(tmp_path)))
    node.committer.open(1, 0)
    finder = CheckpointFinder(node.bucket, node.committer, parallel=2)
    service = Service(
        share_memory=node.share_memory, saver=node.saver, finder=finder, job="job", uid="uid"
    )
    name = f"elasticd-test-{secrets.token_hex(8)}"
    threading.Thread(target=service.listen, args=(name,), daemon=True).start()
    whole, killed = Worker(name, FIRST), Worker(name, SECOND)
    for each in (whole, killed):
        each.take(10)
    assert whole.client.ask(
        ms.WaitDurable(snapshot=OLDER, timeout_s=PATIENCE_S), ms.Durability
    ).is_durable
    whole.take(20)
    for each in (whole, killed):
        each.client.close()
    asker = Client(name)
    question = ms.Find(settle_s=RESTART_S, generation=2)
    assert asker.ask(question, ms.Found, timeout_s=PATIENCE_S).snapshot == OLDER
    assert asker.ask(ms.GetStatus(), ms.Status).notes == (NOTE,)
    asker.ask(ms.Open(generation=2, step=10, run=1), ms.Opened)
    until(lambda: not node.saver.is_busy, lambda: "it is given up, since another went on")
    job = node.saver.wait(MADE, PATIENCE_S)
    assert job is not None
    until(lambda: job.outcome is CommitOutcome.TOO_LATE, lambda: str(job))
    node.saver.close(0.0)


def test_share_of_a_worker_that_is_connected_is_waited_for(tmp_path: Path) -> None:
    """Its last message may wait in the connection, though the process has ended."""
    node = a_node(tmp_path)
    node.take(MADE, FIRST, worker=1, is_new=False)
    node.share_memory.leave(1)
    asked = threading.Thread(target=node.saver.wait_idle, args=(RESTART_S, 2))
    asked.start()
    asked.join(5 * saver_module.LOOK_S)
    assert asked.is_alive()
    node.take(MADE, SECOND, worker=2, is_new=False)
    node.share_memory.leave(2)
    asked.join(PATIENCE_S)
    assert not asked.is_alive()
    assert [each.snapshot for each in committed(node.bucket)] == [OLDER, MADE]
    assert node.saver.take_notes() == ()


@pytest.mark.parametrize(
    ("is_on_one_node", "generation"),
    [(False, 2), (True, 1), (True, 0)],
    ids=["other nodes", "same generation", "not known"],
)
def test_share_that_may_come_is_waited_for(
    tmp_path: Path, is_on_one_node: bool, generation: int
) -> None:
    """From another node's keeper, or from a process that may still be there."""
    node = a_node(tmp_path)
    node.is_on_one_node = is_on_one_node
    node.take(MADE, FIRST, worker=1, is_new=False)
    node.share_memory.leave(1)
    node.share_memory.leave(2)
    assert waited(node, 0.5, generation)
    assert node.saver.take_notes() == ()
    node.saver.close(0.0)


def test_share_that_an_earlier_keeper_left_in_the_storage_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has ended; what it uploaded makes the snapshot whole."""
    monkeypatch.setattr(saver_module, "TURN_S", 0.5)  # Share 0 is another's: this one waits.
    node, earlier = a_node(tmp_path), Node(FolderBucket(str(tmp_path)))
    earlier.take(MADE, FIRST)
    until((tmp_path / fragment_name(MADE, 0, 0)).exists, lambda: "no fragment")
    earlier.saver.close(0.0)
    node.take(MADE, SECOND, worker=2, is_new=False)
    node.share_memory.leave(1)
    node.share_memory.leave(2)
    assert not waited(node, RESTART_S, 2)
    assert [each.snapshot for each in committed(node.bucket)] == [OLDER, MADE]


def test_storage_that_is_away_makes_no_share_lost(tmp_path: Path) -> None:
    """What it has is not known then, so the limit is waited for."""
    is_away = False

    def before(verb: str, name: str) -> None:
        if is_away:
            raise Unavailable("away")

    node = a_node(tmp_path, before)
    node.take(MADE, FIRST, worker=1, is_new=False)
    until((tmp_path / fragment_name(MADE, 0, 0)).exists, lambda: "no fragment")
    is_away = True
    node.share_memory.leave(1)
    node.share_memory.leave(2)
    job = node.saver._jobs[MADE]
    assert not node.saver._is_lost(job, 2)
    is_away = False
    assert node.saver._is_lost(job, 2)
    node.saver.close(0.0)


def test_share_that_is_being_uploaded_is_waited_for(tmp_path: Path) -> None:
    """All shares are here, and the storage is slow."""
    is_slow = threading.Event()
    is_on_its_way, goes_on = threading.Event(), threading.Event()

    def before(verb: str, name: str) -> None:
        if verb == "create" and name.endswith(".bin") and is_slow.is_set():
            is_on_its_way.set()
            assert goes_on.wait(PATIENCE_S)

    node = a_node(tmp_path, before)
    is_slow.set()
    node.take(MADE, FIRST, worker=1, is_new=False)
    node.take(MADE, SECOND, worker=2, is_new=False)
    node.share_memory.leave(1)
    node.share_memory.leave(2)
    assert is_on_its_way.wait(PATIENCE_S)
    assert waited(node, 0.5, 2)
    goes_on.set()
    assert not waited(node, RESTART_S, 2)
    assert [each.snapshot for each in committed(node.bucket)] == [OLDER, MADE]
