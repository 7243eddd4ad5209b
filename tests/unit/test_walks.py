"""How many files the walks of docs/architecture.md enter, so that none creeps up unseen.

The commit's own is in `train/state/test_commit_walk.py`. Here are the parts of the other four that
run in one thread, as somebody reads them who reads each function once: also the predicates of
records and rules, to which they come back most often.
"""

import os
import secrets
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from elasticd.channel.wire import pack
from elasticd.channel.worker import Stepped, unpack_from_worker
from elasticd.checkpoint.commit.upload import UploadShare, upload
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Tensor
from elasticd.checkpoint.format.share_layout import laid_out, shares
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket
from elasticd.cli.run.request import parse
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.save.cancellable_bucket import CancellableBucket
from elasticd.records.checkpoint import Every
from elasticd.records.codec import decode, encode
from elasticd.records.ids import Generation, JobName, Life, NodeId, Nonce, Slot
from elasticd.records.job import JobSpec
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.train.settings import WorkerSettings
from elasticd_agent.job.job_guard import JobGuard
from elasticd_agent.job.worker_dispatch import WorkerDispatch
from elasticd_agent.loop.inbox import Item
from elasticd_agent.worker_setup.worker_setup import WorkerSetup
from elasticd_agent.workers.attached_workers import AttachedWorkers
from tests.fixtures.walk import Walk, walk_of
from tests.unit.rendezvous.cases import failure, proposer
from tests.unit.train.save.save_case import Case

ME = os.getpid()
JOB = JobName("job")


def assert_short(walk: Walk, files: int, returns: int) -> None:
    assert walk.files <= files, sorted(set(walk.stops))
    assert walk.returns <= returns, walk.stops


def test_a_walk_does_not_pass_what_collects_garbage() -> None:
    """A destructor of ours would be counted as a file of the walk."""
    cycle: list[object] = [SharedMemory.new(10)]
    cycle.append(cycle)
    del cycle
    assert walk_of(lambda: [[] for _ in range(5000)]).calls == []


def test_first_commit_from_the_socket_to_the_decision() -> None:
    """What a worker writes becomes an event of its job, and the pure core sees it."""
    inbox: list[Item] = []
    told = proposer(1)

    def feed(event: ev.Event) -> None:
        told.tell(event)

    attached = AttachedWorkers(lambda pid, message: None, feed)
    attached.expect(ME, Slot(0), Nonce(1))
    workers: Any = SimpleNamespace(spec=SimpleNamespace(name=JOB), attached=attached)
    guard = JobGuard(inbox.append, {})
    dispatch = WorkerDispatch(Life("life"), inbox.append, guard, lambda job: workers, os.defpath)
    dispatch.monitor.expect(ME, job=JOB, limit_s=0)
    line = pack(Stepped(generation=Generation(1), step=7))
    try:

        def walk() -> None:
            dispatch.monitor._take_message(ME, unpack_from_worker(line))
            (item,) = inbox
            item()

        found = walk_of(walk).read_once()
    finally:
        dispatch.monitor.close()
    assert told.state.workers[Slot(0)].stepped == Generation(1)
    assert_short(found, files=23, returns=20)


def test_lost_worker_to_the_proposal_of_a_world() -> None:
    told = proposer(1)
    found = walk_of(lambda: told.failed(failure(signal="SIGKILL"))).read_once()
    assert told.count(fx.ProposeWorld) == 1
    assert_short(found, files=27, returns=68)


def test_snapshot_to_the_keeper() -> None:
    """The second one: the plan is agreed on. What the keeper takes of memory differs a little."""
    case = Case("blocking", (0,), Every(steps=1))
    case.begin()
    case.step()
    case.state.train()
    found = walk_of(lambda: case.saving.committed(case.state.position[0])).read_once()
    case.saving.end()
    assert case.steps == [1, 2]
    assert_short(found, files=24, returns=34)


class AtOnce(Executor):
    """Does on the caller's thread what it is given."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **named))
        return future


def test_share_to_the_bucket() -> None:
    tensors = (Tensor("w", "uint8", (200,)),)
    layout = laid_out(tensors, shares(tensors, [True], 1)[0])
    snapshot = Snapshot(run=1, generation=1, step=10)
    share = UploadShare(snapshot=snapshot, share=0, shares=1, holder=0, layout=layout, header=None)
    bucket = FsspecBucket(f"memory://{secrets.token_hex(8)}", {})
    front = CancellableBucket(bucket, lambda: True)
    memory = memoryview(bytes(layout.size))
    found = walk_of(
        lambda: upload(front, share, memory, uid="a", writer="a0000000", pool=AtOnce())
    ).read_once()
    assert bucket.list("steps/", 10, lambda name: True)
    assert_short(found, files=8, returns=4)


def test_flag_to_the_settings_of_a_worker(tmp_path: Path) -> None:
    """The call's words become the job's spec, that goes through etcd, the agent makes a worker's
    environment of it, and the worker reads that.
    """
    args = ["--nproc-per-node", "2", "--checkpoint", str(tmp_path / "saved"), "--on-nan", "stop"]
    settings: list[WorkerSettings] = []

    def walk() -> None:
        spec = parse([*args, "train.py"], {}).spec(name=JOB, uid="u", here=str(tmp_path))
        seen = decode(JobSpec, encode(spec))
        setup = WorkerSetup(seen, NodeId("a"), tmp_path, address="127.0.0.1", environ={})
        settings.append(WorkerSettings.read(setup.prepared_env(Slot(0))))

    found = walk_of(walk).read_once()
    assert settings[0].on_nan == "stop"
    assert_short(found, files=22, returns=28)
