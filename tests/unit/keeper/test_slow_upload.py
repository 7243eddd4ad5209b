"""Uploads that take longer than two snapshots, on a node without memory for a third buffer."""

from dataclasses import replace
from pathlib import Path
from threading import Semaphore

import pytest

from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.errors import EnvironmentProblem
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.memory.share_record import BUFFERS, ShareRecord
from elasticd.keeper.wire.message import Saving
from tests.unit.checkpoint.meddling import Meddling
from tests.unit.keeper.site import PATIENCE_S, Node, a_plan, a_snapshot, committed, record_of

WORKER = 1
PLAN = replace(a_plan(), buffers=BUFFERS + 1)


class SlowStorage:
    """`before` of a `Meddling`: takes the bytes of an upload when the test says so, and not
    earlier."""

    def __init__(self) -> None:
        self.reached, self.turns = Semaphore(0), Semaphore(0)

    def __call__(self, verb: str, name: str) -> None:
        if verb == "create" and name.endswith(".bin"):
            self.reached.release()
            assert self.turns.acquire(timeout=PATIENCE_S)


class Training:
    """Takes a snapshot at each step where its keeper lets it, as the ranks of a job do."""

    def __init__(self, node: Node, storage: SlowStorage) -> None:
        self.node, self.storage = node, storage
        node.share_memory.plan(WORKER, [PLAN])
        self.uploaded: ShareRecord | None = None
        self.given_up: list[int] = []
        self.waited: list[int] = []

    def step(self, step: int) -> None:
        if self.node.share_memory.awaits_upload(WORKER):
            self.waited.append(step)
            self._end_upload()
            return
        is_saved = not self.node.saver.is_busy
        record = self._copy(step, Saving.PINNED if is_saved else Saving.NONE)
        if is_saved:
            self.uploaded = record
            self.node.saver.add(record)
            assert self.storage.reached.acquire(timeout=PATIENCE_S)
        elif self.uploaded is not None and not self.uploaded.is_wanted:
            self.given_up.append(self.uploaded.share.snapshot.step)
            self._end_upload()

    def _copy(self, step: int, saving: Saving) -> ShareRecord:
        buffer, _ = self.node.share_memory.claim(WORKER, PLAN.id)
        memory = self.node.share_memory.memory(WORKER, PLAN.id, buffer)
        memory.view[:] = bytes([step]) * memory.size
        record = record_of(self.node.share_memory, WORKER, PLAN, buffer, a_snapshot(step))
        record.saving = saving
        self.node.share_memory.add(WORKER, PLAN.id, buffer, record)
        return record

    def _end_upload(self) -> None:
        """Storage has taken the bytes at last."""
        self.storage.turns.release()
        self.node.saver.wait_idle(PATIENCE_S)
        self.uploaded = None


@pytest.fixture
def training(tmp_path: Path) -> Training:
    storage = SlowStorage()
    node = Node(Meddling(FolderBucket(str(tmp_path)), storage))
    node.committer.open(1, 0)
    return Training(node, storage)


def test_every_second_upload_makes_a_checkpoint_where_there_is_no_room_beside_it(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow it is: the snapshots wait for it, and go on when it is done."""
    real = SharedMemory.new
    taken: list[int] = []

    def new(size: int) -> SharedMemory:
        if len(taken) == BUFFERS:
            raise EnvironmentProblem("there is none")
        taken.append(size)
        return real(size)

    monkeypatch.setattr(SharedMemory, "new", new)
    for step in range(1, 15):
        training.step(step)
    assert training.given_up == [1, 7]
    assert training.waited == [6, 12]
    assert [each.snapshot.step for each in committed(training.node.bucket)] == [4, 10]
    training.node.saver.close(0.0)


def test_nothing_waits_where_there_is_room(training: Training) -> None:
    """A third buffer is all that it takes, and no upload is given up."""
    for step in range(1, 15):
        training.step(step)
    assert training.given_up == training.waited == []
    training.storage.turns.release()
    training.node.saver.wait_idle(PATIENCE_S)
    assert [each.snapshot.step for each in committed(training.node.bucket)] == [1]
    training.node.saver.close(0.0)
