"""The thread that reads: it outlives whatever it meets, and keeps nothing of jobs that are gone."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from elasticd.control.job_submission import submit
from elasticd.control.progress import AskRanks
from elasticd.control.report.report import job_reports
from elasticd.control.report.unreadable import UnreadableRecords
from elasticd.dashboard import collector as module
from elasticd.dashboard.board import Board
from elasticd.dashboard.collector import Collector, _Read
from elasticd.dashboard.samples import ProgressSample, ProgressSamples
from elasticd.errors import Unavailable
from elasticd.records.account.progress import RankProgress
from elasticd.records.ids import Generation, JobName, Rank
from elasticd.records.member import Node
from elasticd.store.api import WatchSnapshot
from elasticd.store.memory import MemoryStore
from tests.fixtures.patience import patience_s
from tests.unit.control.world_case import make_newer
from tests.unit.control.world_case import node as node_called
from tests.unit.dashboard.records_case import JOB, KEYS, SAY, SPEC, Place, filled, opened

PATIENCE_S = patience_s(30.0)


@pytest.fixture
def ended() -> Collector:
    """One whose thread is over: what it would do is called by the test."""
    collector = Collector(lambda: opened(filled()), lambda: (), SAY)
    collector.close()
    collector._thread.join(PATIENCE_S)
    return collector


def test_a_bug_is_said_and_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of which nobody writes any more looks like one where nothing happens."""
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    store, tries = filled(), iter((True, False))

    @contextmanager
    def open_sources() -> Iterator[Sequence[Place]]:
        if next(tries, False):
            raise KeyError("a field")
        with opened(store) as places:
            yield places

    collector = Collector(open_sources, lambda: (), SAY)
    try:
        board = collector.newer_than(0, PATIENCE_S)
        while board is not None and not board.jobs:
            assert "This is a bug of elasticd: KeyError: 'a field'" in board.trouble
            board = collector.newer_than(board.version, PATIENCE_S)
        assert board is not None and board.trouble == ""
    finally:
        collector.close()


class Ending(MemoryStore):
    """The private etcd of a run, which ends."""

    is_ending = is_over = False

    def list(self, prefix: str) -> WatchSnapshot:
        if self.is_ending:
            self.is_over = True
            raise Unavailable("No etcd answers at unix:///tmp/e: start it or correct --etcd.")
        return super().list(prefix)


@pytest.mark.parametrize(
    ("reread_s", "look_s"), [(0.01, math.inf), (math.inf, 0.01)], ids=["read", "looked at"]
)
def test_end_of_a_run_is_no_trouble_and_its_archive_is_shown_at_once(
    monkeypatch: pytest.MonkeyPatch, reread_s: float, look_s: float
) -> None:
    """Whether its etcd is asked first that has ended, or which runs there are."""
    monkeypatch.setattr(module, "REREAD_S", reread_s)
    monkeypatch.setattr(module, "ASK_S", look_s)
    store = Ending()
    filled(into=store)
    troubles, publish = [], Collector._publish

    def noted(self: Collector, board: Board) -> None:
        troubles.append(board.trouble)
        publish(self, board)

    monkeypatch.setattr(Collector, "_publish", noted)

    @contextmanager
    def open_sources() -> Iterator[Sequence[Place]]:
        with opened(filled() if store.is_over else store, is_archive=store.is_over) as places:
            yield places

    collector = Collector(open_sources, lambda: store.is_over, SAY)
    try:
        board = collector.newer_than(0, PATIENCE_S)
        assert board is not None and not board.jobs[0]["is_archive"]
        store.is_ending = True
        store.is_over = look_s < reread_s
        while not board.jobs[0]["is_archive"]:
            newer = collector.newer_than(board.version, PATIENCE_S)
            assert newer is not None
            board = newer
        assert set(troubles) == {""}
    finally:
        collector.close()


def test_samples_are_of_one_run_and_go_with_its_records(ended: Collector) -> None:
    """A job that was submitted anew under the name begins without any."""
    for uid in ("u", "of a run before"):
        ended._samples[uid] = ProgressSamples()
        ended._samples[uid].add(ProgressSample(at_s=1.0, at_unix_s=1.0, step=len(uid), step_s=0.1))
    store = filled()
    reports = job_reports(store.list(KEYS.jobs).items, KEYS, UnreadableRecords())
    board = ended._drawn([_Read(source=Place(store=store), reports=reports)])
    assert [each["step"] for each in board.pages[JOB].samples] == [1]
    assert list(ended._samples) == ["u"]
    ended._drawn([_Read(source=Place(store=MemoryStore()), reports=())])
    assert ended._samples == {}


class Asked(AskRanks):
    """Nodes that answer at once; how often they were asked."""

    def __init__(self) -> None:
        super().__init__(JobName("j"), None)
        self.count = 0

    def of(self, node: Node) -> tuple[RankProgress, ...]:
        self.count += 1
        return (RankProgress(rank=Rank(0), generation=Generation(1)),)


def test_a_node_that_keeps_us_waiting_is_not_asked_for_a_while(
    ended: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change is on the page within a second also where a node has just died."""
    ask, node = Asked(), node_called("a")
    monkeypatch.setattr(module, "SLOW_S", math.inf)
    for _ in range(2):
        assert ended._ranks_of(ask, node)
    monkeypatch.setattr(module, "SLOW_S", 0.0)
    ended._ranks_of(ask, node)
    assert ended._ranks_of(ask, node) == ()
    assert ask.count == 3
    ended._slow_until_s = {node.node: 0.0}
    assert ended._ranks_of(ask, node), "the while is over"


class Busy(MemoryStore):
    """An etcd that takes some time for each list, by a clock of its own."""

    now_s = 0.0
    spent_s = 0.0
    list_s = 0.0

    def list(self, prefix: str) -> WatchSnapshot:
        self.now_s += self.list_s
        self.spent_s += self.list_s
        return super().list(prefix)

    def monotonic(self) -> float:
        return self.now_s


class Rest:
    """The event of the collector's end, which comes after a time of that clock."""

    def __init__(self, store: Busy, end_s: float, changed: Callable[[], None]) -> None:
        self._store, self._end_s, self._changed = store, end_s, changed

    def is_set(self) -> bool:
        return self._store.now_s >= self._end_s

    def wait(self, wait_s: float) -> None:
        self._store.now_s += wait_s
        self._changed()

    def set(self) -> None: ...


@pytest.mark.parametrize("list_s", [0.0, 0.05, 0.5])
def test_records_that_change_all_the_time_keep_etcd_busy_for_a_share_of_it(
    ended: Collector, monkeypatch: pytest.MonkeyPatch, list_s: float
) -> None:
    """However many jobs there are, and so however long a reading takes."""
    store = Busy()
    filled(into=store)
    store.list_s = list_s
    clock = SimpleNamespace(monotonic=store.monotonic, time=time.time)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(ended, "_closing", Rest(store, 600.0, ended._changed))
    reads, read = [], Collector._read

    def noted(*args: Any) -> _Read:
        reads.append(store.now_s)
        return read(*args)

    monkeypatch.setattr(Collector, "_read", noted)
    with opened(store) as places:
        ended._follow(places, ())
    assert store.spent_s <= 1.2 * module.WORK_SHARE * store.now_s
    assert len(reads) >= 15, "and it is read all the same"
    gaps = [after - before for before, after in pairwise(reads)]
    assert min(gaps) >= 0.99 * module.APART_S


def test_job_of_a_newer_elasticd_is_trouble_and_hides_no_other() -> None:
    """The other jobs are shown, and one line says which record cannot be read."""
    store = filled()
    other = JobName("other")
    submit(store, KEYS, replace(SPEC, name=other, uid="o"))
    make_newer(store, KEYS.spec(other))
    collector = Collector(lambda: opened(store), lambda: (), SAY)
    try:
        board = collector.newer_than(0, PATIENCE_S)
        assert board is not None and [row["job"] for row in board.jobs] == [JOB]
        assert board.trouble.startswith("Job other is left out: The JobSpec record in etcd has")
    finally:
        collector.close()
