"""Collects the data for the dashboard and `elasticd top`: records of etcd, ranks from the agents.

A watch reports changes, and a slow re-read repairs gaps of a watch. The agents are asked for their
ranks once a second, and only for jobs that run. Each reading reads all records, which takes long
where there are many jobs: then the collector reads less often.
"""

import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from elasticd.control.progress import AskRanks
from elasticd.control.report.node_report import NodeReport, node_reports
from elasticd.control.report.occupancy import read_uses
from elasticd.control.report.report import JobReport, job_reports, with_elsewhere
from elasticd.control.report.unreadable import UnreadableRecords
from elasticd.dashboard.board import Board, JobPage
from elasticd.dashboard.job_view import (
    Plain,
    Sentences,
    change_view,
    job_row,
    job_view,
    listed_by,
    node_row,
    samples_view,
    stacks_place,
)
from elasticd.dashboard.samples import ProgressSample, ProgressSamples
from elasticd.dashboard.stacks import StacksCache, StacksKey, StacksText
from elasticd.errors import ElasticdError, NotFound
from elasticd.records.account.progress import RankProgress
from elasticd.records.ids import Generation, NodeId
from elasticd.records.job import JobSpec
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.records.reason import Phase
from elasticd.store.api import KeyRange, Store, StoreSettings

__all__ = ["Collector", "Opened", "ReadStacks"]

ASK_S = 1.0
"""The time between two requests for the ranks."""
REREAD_S = 10.0
APART_S = 0.2
"""The least time between two readings of etcd, however fast it changes."""
WORK_SHARE = 0.2
"""The greatest share of the time for reading etcd, and for drawing: else many jobs whose records
change would keep etcd and a core of this machine busy."""
REST_MOST_S = 60.0
"""The longest rest after one reading: its time may have been the network's."""
RETRY_S = 2.0
LOOK_SHARE = 0.02
"""The greatest share of the time for listing the local runs: a folder with hundreds of runs takes
tens of milliseconds."""
JOBS_ASKED = 32
"""The number of running jobs whose ranks are asked for."""
NODES_ASKED = 16
"""The number of nodes of a world that are asked; all ranks step together, so the first are enough.
"""
SLOW_S, SLOW_PAUSE_S = 1.0, 10.0
"""If a node's answer took longer than the first, the node is not asked during the second: the
board waits for the slowest node."""
CALLS_AT_ONCE = 16
"""The number of nodes that are asked at once, each over its own connection, so that a silent node
does not delay the others."""


class Opened(Protocol):
    """An opened source of records: a cluster's etcd, a local run's etcd, or an archive."""

    @property
    def store(self) -> Store: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def settings(self) -> StoreSettings | None: ...
    @property
    def is_archive(self) -> bool: ...
    @property
    def run_folder(self) -> Path: ...


ReadStacks = Callable[[Opened, JobSpec, Generation, NodeId, Node | None], str]
"""Reads the stacks that a node wrote in a generation; the last argument is the node's record. It
raises an ElasticdError if the stacks cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """The jobs of one source, and the reports of its ranks."""

    source: Opened
    reports: tuple[JobReport, ...]
    nodes: tuple[NodeReport, ...] = ()
    trouble: str = ""
    """Which records are left out; empty if none are."""


class Collector:
    """Keeps the board up to date until `close`; any thread may wait for a newer board."""

    def __init__(
        self,
        open_sources: Callable[[], AbstractContextManager[Sequence[Opened]]],
        which: Callable[[], Hashable],
        say: Sentences,
        read_stacks: ReadStacks | None = None,
    ) -> None:
        """Start the collector's thread.

        `which` names the sources; when its result changes, `open_sources` opens them anew. Only
        the collector's thread calls both. Any thread may call `read_stacks`.
        """
        self._open_sources, self._which, self._say = open_sources, which, say
        self._read_stacks, self._stacks = read_stacks, StacksCache()
        self._reads: Sequence[_Read] = ()
        """The newest readings; the sequence is replaced as a whole, so any thread may read it."""
        self._board = Board()
        self._news = threading.Condition()
        self._wake = threading.Event()
        self._has_changed = threading.Event()
        self._closing = threading.Event()
        self._asks: dict[str, AskRanks] = {}
        self._ranks: dict[str, tuple[float, tuple[RankProgress, ...]]] = {}
        self._samples: dict[str, ProgressSamples] = {}
        """The samples by the job's uid: another job may have the same name later."""
        self._autoscale: dict[str, tuple[JobReport, Plain | None]] = {}
        self._slow_until_s: dict[NodeId, float] = {}
        self._calls = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="ask")
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)
        self._thread.start()

    def newer_than(self, version: int, timeout_s: float) -> Board | None:
        """Return a board with a higher version; None after `timeout_s`, or after the last board."""
        with self._news:
            self._news.wait_for(lambda: self._board.version > version or self.is_closing, timeout_s)
            return self._board if self._board.version > version else None

    def stacks(self, job: str, generation: int, node: str = "") -> StacksText:
        """Return the stacks that a node wrote before a rank that hung was ended.

        `generation` is that of the change. Without `node` the function takes the node of the rank
        that hung, or the first node if all ranks were silent.

        Raises: NotFound: there is no such job, change or node, or no rank hung there.
        """
        found = [(r, each) for r in self._reads for each in r.reports if each.spec.name == job]
        if not found:
            raise NotFound(f"There is no job {job!r}.")
        read, report = found[0]
        by_generation = {change.generation: change for change in report.changes}
        change = by_generation.get(Generation(generation))
        if change is None:
            raise NotFound(f"Job {job} has no change to generation {generation} (any more).")
        place = stacks_place(report, change)
        if place is None or self._read_stacks is None:
            raise NotFound(f"There are no stacks of the change to generation {generation}.")
        of, first = place
        world, wanted = by_generation.get(of), NodeId(node) if node else first
        if wanted != first and (world is None or wanted not in world.members):
            raise NotFound(f"Node {node!r} had no part in generation {of}.")
        known = next((each.node for each in read.nodes if each.node.node == wanted), None)
        ask = partial(self._read_stacks, read.source, report.spec, of, wanted, known)
        key = StacksKey(uid=report.spec.uid, generation=of, node=wanted)
        return self._stacks.get(key, ask)

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        with self._news:
            self._news.notify_all()
        self._thread.join(RETRY_S)
        self._stacks.close()

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        which: Hashable = None
        while not self.is_closing:
            try:
                which = self._which()
                with self._open_sources() as opened, ExitStack() as stack:
                    self._watch(opened, stack)
                    self._follow(opened, which)
            except ElasticdError as exc:
                if self._are_others(which):
                    continue  # A local run has ended; its archive is next.
                self._publish(replace(self._board, trouble=str(exc)))
                self._pause(RETRY_S)
            except OSError as exc:
                self._publish(replace(self._board, trouble=f"It cannot be read: {exc}"))
                self._pause(RETRY_S)
            except Exception as exc:  # Without this thread the page would never change again.
                trouble = f"This is a bug of elasticd: {type(exc).__name__}: {exc}"
                self._publish(replace(self._board, trouble=trouble))
                self._pause(RETRY_S)
        self._calls.shutdown()
        for ask in self._asks.values():
            ask.close()

    def _are_others(self, which: Hashable) -> bool:
        """Return whether the sources differ from those that were opened."""
        with suppress(ElasticdError, OSError):
            return self._which() != which
        return False

    def _watch(self, opened: Sequence[Opened], stack: ExitStack) -> None:
        for source in opened:
            if source.is_archive:
                continue
            for prefix in (source.keys.jobs, source.keys.nodes, source.keys.drains):
                watch = source.store.watch(
                    KeyRange(key=prefix, is_prefix=True), lambda seen: self._changed()
                )
                stack.callback(watch.close)

    def _changed(self) -> None:
        """Note that a record changed; a store's thread calls this."""
        self._has_changed.set()
        self._wake.set()

    def _follow(self, opened: Sequence[Opened], which: Hashable) -> None:
        """Read the sources until other sources exist."""
        reads: list[_Read] = []
        read_from_s = reread_s = ask_s = look_s = 0.0
        while not self.is_closing:
            now_s = time.monotonic()
            if now_s >= (read_from_s if self._has_changed.is_set() else reread_s):
                self._has_changed.clear()
                reads = self._reads = [self._read(source, reads) for source in opened]
                read_from_s = _rested_s(now_s)
                reread_s = max(now_s + REREAD_S, read_from_s)
            if now_s >= look_s:
                if self._which() != which:
                    return
                look_s = now_s + max(ASK_S, (time.monotonic() - now_s) / LOOK_SHARE)
            if now_s >= ask_s:
                self._ask(reads)
                ask_s = now_s + ASK_S
            began_s = time.monotonic()
            self._publish(self._drawn(reads))
            self._closing.wait(_rested_s(began_s) - time.monotonic())
            if self._has_changed.is_set():  # The next change ends no wait for etcd's rest.
                self._closing.wait(max(0.0, min(ask_s, read_from_s) - time.monotonic()))
            else:
                self._pause(max(0.0, min(ask_s, reread_s) - time.monotonic()))

    def _pause(self, wait_s: float) -> None:
        """Wait for `wait_s`; a change ends the wait."""
        self._wake.wait(wait_s)
        self._wake.clear()

    def _read(self, source: Opened, before: Sequence[_Read]) -> _Read:
        known = next((read for read in before if read.source is source), None)
        if source.is_archive and known is not None:
            return known
        store, keys, unreadable = source.store, source.keys, UnreadableRecords()
        reports = job_reports(store.list(keys.jobs).items, keys, unreadable)
        if source.is_archive:
            return _Read(source=source, reports=reports, trouble=unreadable.sentence)
        nodes = node_reports(
            store.list(keys.nodes).items,
            store.list(keys.drains).items,
            keys,
            unreadable,
            read_uses(store, keys, unreadable),
            late=[late for report in reports for late in report.late_now],
        )
        reports = tuple(with_elsewhere(store, keys, reports, unreadable))
        return _Read(source=source, reports=reports, nodes=nodes, trouble=unreadable.sentence)

    def _ask(self, reads: Sequence[_Read]) -> None:
        running = [
            (read, report)
            for read in reads
            for report in read.reports
            if report.status.phase is Phase.RUNNING and not read.source.is_archive
        ]
        now_s = time.monotonic()
        self._slow_until_s = {n: s for n, s in self._slow_until_s.items() if s > now_s}
        for read, report in running[:JOBS_ASKED]:
            name, world = report.spec.name, report.world
            if world is None:
                continue
            if name not in self._asks:
                self._asks[name] = AskRanks(name, read.source.settings)
            here = {each.node.node: each.node for each in read.nodes}
            nodes = [here[p.node] for p in world.nodes[:NODES_ASKED] if p.node in here]
            answers = self._calls.map(partial(self._ranks_of, self._asks[name]), nodes)
            found = tuple(rank for ranks in answers for rank in ranks)
            at_unix_s = time.time()
            self._ranks[name] = (at_unix_s, found)
            first = next((rank for rank in found if rank.step is not None), None)
            if first is not None and first.step is not None:
                self._samples.setdefault(report.spec.uid, ProgressSamples()).add(
                    ProgressSample(
                        at_s=time.monotonic(),
                        at_unix_s=at_unix_s,
                        step=first.step,
                        step_s=first.step_s,
                        scalars=first.scalars,
                    )
                )
        names = {report.spec.name for _, report in running}
        for gone in [name for name in self._asks if name not in names]:
            self._asks.pop(gone).close()
            self._ranks.pop(gone, None)

    def _ranks_of(self, ask: AskRanks, node: Node) -> tuple[RankProgress, ...]:
        """Ask one node for its ranks, unless the node was slow recently."""
        began_s = time.monotonic()
        if began_s < self._slow_until_s.get(node.node, 0.0):
            return ()
        found = ask.of(node)
        if time.monotonic() - began_s >= SLOW_S:
            self._slow_until_s[node.node] = time.monotonic() + SLOW_PAUSE_S
        else:
            self._slow_until_s.pop(node.node, None)
        return found

    # --- the board ----------------------------------------------------------------------------

    def _drawn(self, reads: Sequence[_Read]) -> Board:
        before = self._board
        pages: dict[str, JobPage] = {}
        jobs: list[Plain] = []
        for read in reads:
            for report in read.reports:
                name = report.spec.name
                if name in pages:
                    continue  # Of two runs of one name, the newer one comes first.
                pages[name] = self._page(report, before.pages.get(name))
                jobs.append(job_row(report, is_archive=read.source.is_archive))
        uids = {report.spec.uid for read in reads for report in read.reports}
        self._samples = {uid: kept for uid, kept in self._samples.items() if uid in uids}
        self._autoscale = {name: kept for name, kept in self._autoscale.items() if name in pages}
        nodes = [node_row(node) for read in reads for node in read.nodes]
        jobs.sort(key=listed_by)
        return Board(
            version=before.version,
            jobs=tuple(jobs),
            nodes=tuple(nodes),
            trouble=next((read.trouble for read in reads if read.trouble), ""),
            pages=pages,
        )

    def _page(self, report: JobReport, before: JobPage | None) -> JobPage:
        name = report.spec.name
        at_unix_s, ranks = self._ranks.get(name, (0.0, ()))
        known: Mapping[object, Plain] = {}
        if before is not None:
            known = {change["generation"]: change for change in before.changes}
        changes = []
        for change in report.changes:
            view = change_view(report, change, self._say)
            old = known.get(change.generation)
            changes.append(old if old == view and old is not None else view)
        samples = self._samples.get(report.spec.uid)
        return JobPage(
            view=job_view(report, ranks, self._say, at_unix_s=at_unix_s),
            changes=tuple(changes),
            samples=samples_view(samples.all()) if samples is not None else (),
            samples_moved=samples.times_moved if samples is not None else 0,
            autoscale=self._autoscale_of(report),
        )

    def _autoscale_of(self, report: JobReport) -> Plain | None:
        """Return the view of a job's autoscaling; it is cached until the report changes."""
        name = report.spec.name
        known = self._autoscale.get(name)
        if known is None or known[0] is not report:
            known = self._autoscale[name] = (report, self._say.autoscale(report))
        return known[1]

    def _publish(self, board: Board) -> None:
        with self._news:
            if replace(board, version=0) == replace(self._board, version=0) and board.version:
                return
            self._board = replace(board, version=self._board.version + 1)
            self._news.notify_all()


def _rested_s(began_s: float) -> float:
    """Return the moment from which work may be done again that began at `began_s` and ends now."""
    now_s = time.monotonic()
    return now_s + min(REST_MOST_S, max(APART_S, (now_s - began_s) * (1 / WORK_SHARE - 1)))
