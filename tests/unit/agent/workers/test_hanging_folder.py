"""A disk that hangs under one job's folder costs that job, and neither the node nor its others."""

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import cast

import pytest

from elasticd.channel.pool import License
from elasticd.control import job_submission
from elasticd.records.codec import decode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import EntryKind, JobSpec
from elasticd.records.keys import Keys
from elasticd.records.member import Member
from elasticd.store.api import KeyRange, KeysChanged, StoreSettings, WatchSnapshot
from elasticd.store.memory import MemoryStore
from elasticd_agent.agent import Agent
from elasticd_agent.node.presence import Presence
from elasticd_agent.settings import AgentSettings
from elasticd_agent.worker_setup import log_folder, worker_setup
from elasticd_agent.workers.fork_server_client import ForkServerClient
from elasticd_agent.workers.pool_client import WarmPool
from tests.fixtures.cluster import until
from tests.fixtures.patience import patience_s
from tests.fixtures.pool import ChildrenOfTest

KEYS, NODE = Keys(), NodeId("a")
STUCK, WELL = JobName("stuck"), JobName("well")
WAIT_S = patience_s(60.0)


def spec_of(job: JobName) -> JobSpec:
    """A job whose pool is up in no time, since it needs no torch."""
    return JobSpec(name=job, uid=job, entry_kind=EntryKind.COMMAND, entry="sleep", args=("600",))


class Disk:
    """What stands between a folder and whoever claims it: nothing, a hang, or an error."""

    def __init__(self) -> None:
        self.is_back = Event()
        self.error: OSError | None = None
        self.claims: list[str] = []

    def claim(self, folder: Path, uid: str) -> None:
        self.claims.append(folder.name)
        if folder.name == STUCK:
            assert self.is_back.wait(WAIT_S)
            if self.error is not None and self.claims.count(STUCK) == 1:
                raise self.error
        log_folder.claim(folder, uid)


class Site:
    """One node with room for two jobs, and an etcd in memory."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        settings = AgentSettings(
            node=NODE,
            host="host",
            address="127.0.0.1",
            store=StoreSettings(endpoints=()),
            environ=os.environ,
            slots=2,
            run_folder=folder,
            lease_ttl_s=2.0,
        )
        self.presence = Presence(settings, self.store)
        self.presence.open()
        self.agent = Agent(self.presence, ChildrenOfTest())

    def member(self, job: JobName) -> Member | None:
        item = self.store.get(KEYS.member(job, NODE))
        return None if item is None else decode(Member, item.value)

    def is_ready(self, job: JobName) -> bool:
        member = self.member(job)
        return member is not None and member.slots != ()

    def play(self, scene: Callable[[], None]) -> None:
        """Serve on this thread, as an agent does, while the scene is played on another."""

        def played() -> None:
            try:
                scene()
            finally:
                for _ in range(2):  # The second signal ends it at once.
                    self.presence.inbox.put(lambda: self.agent._end("test"))

        with ThreadPoolExecutor(1) as other:
            playing = other.submit(played)
            self.agent.run()
            playing.result(WAIT_S)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(worker_setup, "claim", disk.claim)
    yield disk
    disk.is_back.set()


@pytest.fixture
def site(tmp_path: Path, disk: Disk) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.presence.close()
    site.store.close()


def test_folder_that_hangs_stops_neither_the_owner_nor_its_lease(site: Site, disk: Disk) -> None:
    """The node begins another job meanwhile, and this one as soon as the disk answers."""

    def scene() -> None:
        try:
            job_submission.submit(site.store, KEYS, spec_of(STUCK))
            until(lambda: STUCK in disk.claims, lambda: disk.claims)
            job_submission.submit(site.store, KEYS, spec_of(WELL))
            until(lambda: site.is_ready(WELL), lambda: site.member(WELL))
            assert not site.is_ready(STUCK) and site.member(STUCK) is not None
            assert not site.presence.registration.is_fenced
        finally:
            disk.is_back.set()
        until(lambda: site.is_ready(STUCK), lambda: site.member(STUCK))

    site.play(scene)


def test_agent_ends_while_a_folder_hangs(
    site: Site, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes back from the disk then finds that nobody wants a pool any more."""
    started: list[object] = []
    monkeypatch.setattr(ChildrenOfTest, "start", lambda _, begin: started.append(begin))
    monkeypatch.setattr("elasticd_agent.workers.pool_client.END_TIMEOUT_S", 0.0)
    monkeypatch.setattr("elasticd_agent.workers.pool_client.KILL_TIMEOUT_S", 0.0)

    def scene() -> None:
        job_submission.submit(site.store, KEYS, spec_of(STUCK))
        until(lambda: STUCK in disk.claims, lambda: disk.claims)

    site.play(scene)
    (runner,) = site.agent._runners.values()
    disk.is_back.set()
    runner.workers._pool._thread.join(WAIT_S)
    assert not runner.workers._pool._thread.is_alive() and not started


@pytest.mark.parametrize("file", ["/run/stuck", None])
def test_folder_that_cannot_be_used_is_said_and_tried_again(
    site: Site, disk: Disk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str | None
) -> None:
    """Whoever asks the job what it waits for is told why, until it has passed. The system names no
    file where a write found no room; then the folder is named.
    """
    monkeypatch.setattr("elasticd_agent.job.runner.POOL_RETRY_S", 0.5)
    disk.error = OSError(28, "No space left on device", file)
    disk.is_back.set()
    told: list[str] = []

    def see(seen: WatchSnapshot | KeysChanged) -> None:
        """It stands there for half a second, in which nobody may look."""
        items = (
            seen.items if isinstance(seen, WatchSnapshot) else [each.item for each in seen.changes]
        )
        members = [decode(Member, item.value) for item in items if item is not None]
        told.extend(each.failure.exception for each in members if each.failure is not None)

    watch = site.store.watch(KeyRange(key=KEYS.member(STUCK, NODE)), see)

    def scene() -> None:
        job_submission.submit(site.store, KEYS, spec_of(STUCK))
        until(lambda: told, lambda: site.member(STUCK))
        until(lambda: site.is_ready(STUCK), lambda: site.member(STUCK))
        member = site.member(STUCK)
        assert member is not None and member.failure is None

    site.play(scene)
    watch.close()
    where = file or next(tmp_path.rglob(f"{STUCK}/agents"))
    assert set(told) == {f"{where}: No space left on device"}


def test_job_for_which_no_thread_is_left_is_begun_later(
    site: Site, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent would else end, with the workers of all its jobs."""
    monkeypatch.setattr("elasticd_agent.agent.JOIN_RETRY_S", 0.2)
    disk.is_back.set()
    start, refused = Thread.start, list[str]()

    def refuse(thread: Thread) -> None:
        if thread.name == "pool" and len(refused) < 2:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(Thread, "start", refuse)

    def scene() -> None:
        job_submission.submit(site.store, KEYS, spec_of(WELL))
        until(lambda: site.is_ready(WELL), lambda: site.member(WELL))

    site.play(scene)
    assert len(refused) == 2


class NoServer:
    """Forks no pool, as where there is no thread for a connection."""

    def fork(self, *_: object) -> None:
        return None


def test_pool_whose_end_no_thread_can_watch_is_heard_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own thread would else end without a word, and the node never begin the job."""
    start, heard = Thread.start, Queue[object]()

    def refuse(thread: Thread) -> None:
        if thread.name != "pool":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(Thread, "start", refuse)
    monkeypatch.setattr(WarmPool, "_spawned", lambda *_: subprocess.Popen(["true"]))
    WarmPool(
        python="",
        env={},
        cwd="/",
        preload=(),
        on_message=heard.put,
        log_path=str(tmp_path / "pool.log"),
        children=ChildrenOfTest(),
        fork_server=cast(ForkServerClient, NoServer()),
    )
    assert heard.get(timeout=WAIT_S) is None


def test_pool_that_nobody_can_write_to_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a part of a message; the job would else be given up on this node for good."""
    start, heard, may_start = Thread.start, Queue[object](), Event()

    def refuse(thread: Thread) -> None:
        if thread.name == "pool-writer":
            raise RuntimeError("can't start new thread")
        start(thread)

    def wait() -> None:
        assert may_start.wait(WAIT_S)

    monkeypatch.setattr(Thread, "start", refuse)
    monkeypatch.setattr(WarmPool, "_spawned", lambda *_: subprocess.Popen(["true"]))
    pool = WarmPool(
        python="",
        env={},
        cwd="/",
        preload=(),
        on_message=heard.put,
        log_path=str(tmp_path / "pool.log"),
        children=ChildrenOfTest(),
        prepare=wait,
    )
    try:
        for number in range(20_000):
            pool.send(License(until_s=float(number)))
    finally:
        may_start.set()
    assert heard.get(timeout=WAIT_S) is None
