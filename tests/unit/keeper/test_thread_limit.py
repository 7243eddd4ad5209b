"""A keeper at its limit of threads: what it cannot begin now costs only that, and nothing later."""

import secrets
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import pytest

from elasticd.checkpoint.commit.committer import Committer
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.keeper import checkpoint_finder as finder_module
from elasticd.keeper import saver as saver_module
from elasticd.keeper import service as service_module
from elasticd.keeper.checkpoint_finder import CheckpointFinder
from elasticd.keeper.client import Client, KeeperGone
from elasticd.keeper.service import Service
from elasticd.keeper.wire import message as ms
from tests.fixtures.cluster import until
from tests.unit.checkpoint.stock_case import JOB, UID, Maker
from tests.unit.keeper.site import PATIENCE_S, Node, a_plan, a_snapshot, committed, memfds


class Scarce:
    """`Thread` of a module: the first ones cannot be had."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def __call__(self, *args: Any, **more: Any) -> Thread:
        thread = Thread(*args, **more)
        if self.refusals:
            self.refusals -= 1
            thread.start = self._refuse  # type: ignore[method-assign]
        return thread

    def _refuse(self) -> None:
        raise RuntimeError("can't start new thread")


def test_snapshot_without_a_thread_holds_up_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker is told that it is not saved; the keeper is not busy with it for ever."""
    node = Node(FolderBucket(str(tmp_path)))
    node.committer.open(1, 0)
    monkeypatch.setattr(saver_module, "Thread", Scarce(1))
    with pytest.raises(RuntimeError, match="can't start new thread"):
        node.take(a_snapshot(10), a_plan())
    assert not node.saver.is_busy
    node.take(a_snapshot(20), a_plan(), is_new=False)
    assert node.saver.wait(a_snapshot(20), PATIENCE_S) is not None
    assert [each.snapshot.step for each in committed(node.bucket)] == [20]
    assert node.saver.close(PATIENCE_S)


def test_beginning_without_a_thread_is_written_with_the_next_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 goes on; a generation that is over may not commit meanwhile what it made beside it."""
    node = Node(FolderBucket(str(tmp_path)))
    node.committer.open(1, 0)
    node.saver.use_run(1)
    monkeypatch.setattr(saver_module, "Thread", Scarce(1))
    assert node.saver.open(2, 5, 1) == 1
    assert CommitLog(node.bucket).state().generation == 1
    node.take(a_snapshot(60, 1), a_plan())
    assert node.saver.wait(a_snapshot(60, 1), PATIENCE_S) is not None
    log_state = CommitLog(node.bucket).state()
    assert (log_state.generation, log_state.start_step) == (2, 5)
    assert committed(node.bucket) == []
    node.take(a_snapshot(10, 2), a_plan(), is_new=False)
    assert node.saver.wait(a_snapshot(10, 2), PATIENCE_S) is not None
    assert [each.snapshot.step for each in committed(node.bucket)] == [10]
    node.saver.close(PATIENCE_S)


def test_worker_without_a_thread_is_hung_up_on_and_the_next_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper listens on, and waits at its end for nobody who was never served."""
    node = Node(FolderBucket(str(tmp_path)))
    finder = CheckpointFinder(node.bucket, node.committer, parallel=1)
    service = Service(
        share_memory=node.share_memory, saver=node.saver, finder=finder, job="job", uid="uid"
    )
    name = f"elasticd-test-{secrets.token_hex(8)}"
    monkeypatch.setattr(service_module, "Thread", Scarce(1))
    Thread(target=service.listen, args=(name,), daemon=True).start()
    with pytest.raises(KeeperGone):
        Client(name).ask(ms.GetStatus(), ms.Status, timeout_s=PATIENCE_S)
    client = Client(name, limit_s=1.0)
    assert not client.ask(ms.GetStatus(), ms.Status, timeout_s=PATIENCE_S).is_busy
    client.close()
    assert service.wait_left(PATIENCE_S)
    node.saver.close(0.0)


def test_fetched_pieces_without_a_thread_are_given_and_freed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank gets what it has asked for; the memory is not kept for ever for the other ranks."""

    class Refused(Timer):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    maker = Maker.of(tmp_path, steps=1)
    committer = Committer(bucket=maker.bucket, log=CommitLog(maker.bucket), uid=UID, job=JOB)
    finder = CheckpointFinder(maker.bucket, committer, parallel=1)
    monkeypatch.setattr(finder_module, "Timer", Refused)
    before = memfds()
    memory = finder.fetch(2, ())
    assert memory is not finder.fetch(2, ())
    del memory
    # A thread that read it may hold it for a moment longer; nobody else would free it.
    until(lambda: memfds() <= before, memfds)
    finder.close()
