"""Plays a schedule against a site, and writes down what it did and saw.

One thread, the main one: it starts the processes, and the kernel ends them with the thread that
started them. It sleeps a tick, reads what is new, does what is due. Every wait has an end; one that
is in vain is noted in the history, ends the schedule, and the verdict says what that means.
"""

import heapq
import itertools
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from chaos.ended_life import EndedLives
from chaos.error import ChaosError, NotNow
from chaos.history.records import (
    Began,
    Ended,
    GaveUp,
    LeftBehind,
    Record,
    Struck,
    Undone,
    to_line,
)
from chaos.history.tail import Tail
from chaos.plan.fault import TRAITS, After, Fault
from chaos.plan.scenario import Scenario
from chaos.process import boottime_s
from chaos.site import FINAL, Blow, Node, Site, spell_script
from chaos.status import StatusWatch
from chaos.why.watch import WhyWatch, keep_why
from elasticd.store.api import StoreSettings
from elasticd.store.etcd.store import EtcdStore

__all__ = ["RUNNER_FILE", "Runner"]

RUNNER_FILE = "runner.jsonl"
RANKS_FILE = "ranks.jsonl"
TICK_S = 0.02
START_LIMIT_S = 120.0
ORDERS_LIMIT = 20
"""Workers, one after the other, that get an order and end before they obey."""
AIM_LIMIT_S = 60.0
END_LIMIT_S = 60.0
END_IN_S = 1.5
"""The end is named so far ahead that every rank reads it before it comes there."""
REFERENCE_LIMIT_S = 120.0
REFERENCE_STEP_LIMIT_S = 0.5
"""A step takes some 0.04 s; on two cores with a load of 15 some took 0.2 s."""
MARGIN = 3.0
"""A wait goes on so much longer than the bound: a late recovery is measured, not just missed."""
REST_STEPS = 20
"""Steps of a process with which the record of its slot begins anew."""


class JobOver(Exception):
    """The job came to an end of its own."""


class InVain(Exception):
    """What was waited for did not come; it is noted."""


class Runner:
    """One run of one schedule."""

    def __init__(
        self,
        site: Site,
        schedule: Sequence[Fault],
        *,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self._site, self._schedule, self._seed, self._say = site, schedule, seed, say
        self._scenario: Scenario = site.scenario
        self._tail = Tail(site.records / RANKS_FILE, full_size=self._scenario.full_size)
        self._lock = threading.Lock()
        self._file = (site.folder / RUNNER_FILE).open("a")
        self._undos: list[tuple[float, int, Fault, Blow]] = []
        self._order = itertools.count()
        self._lives = EndedLives()
        self._began_s = boottime_s()
        self._watch: StatusWatch | None = None
        self._why: WhyWatch | None = None

    def run(self) -> None:
        """Start everything, play the schedule, end everything but the servers."""
        try:
            self._site.start()
            urls, job = self._site.urls, self._site.job
            self._watch = StatusWatch(urls, job, self._scenario, self._note)
            self._watch.start()
            store = EtcdStore(StoreSettings(endpoints=tuple(urls)))
            self._why = WhyWatch(store, self._note, job)
            self._why.start()
            with suppress(JobOver, InVain):
                self._play()
            self._end()
        finally:
            for watch in (self._watch, self._why):
                if watch is not None:
                    watch.stop()
            self._file.close()

    # --- the schedule

    def _play(self) -> None:
        scenario = self._scenario
        if scenario.job.poison_at_step == 0:
            self._wait(
                lambda: self._tail.is_full_since(0.0),
                START_LIMIT_S,
                "the job did not make a first step at full size",
            )
        self._note(
            Began(
                at_s=boottime_s(),
                scenario=scenario.name,
                seed=self._seed,
                full_size=scenario.full_size,
                samples=scenario.job.samples,
                faults=len(self._schedule),
            )
        )
        self._began_s = boottime_s()
        last: Fault | None = None
        for fault in self._schedule:
            if fault.after is not After.PREVIOUS:
                self._wait_steady(last)
            if fault.after is After.RESTED:
                self._wait_rested()
            self._sleep(fault.wait_s)
            self._strike(fault)
            last = fault
        if scenario.verdict.end == "succeeded":
            self._wait_steady(last)
            # A moment of calm, so that what the last fault did has time to show.
            self._sleep(0.5)

    def _wait_steady(self, last: Fault | None) -> None:
        """Wait for a commit at full size since the last fault and what undid it."""
        undone_s = TRAITS[last.kind].undone_s if last is not None else AIM_LIMIT_S
        self._wait(lambda: not self._undos, undone_s, "a fault could not be undone")
        aftereffect_s = TRAITS[last.kind].aftereffect_s if last is not None else 0.0
        since_s = boottime_s() + aftereffect_s if last is not None else 0.0
        bound_s = self._scenario.verdict.full_s + aftereffect_s
        bound_s += last.recover_s if last is not None else 0.0
        self._wait(
            lambda: self._tail.is_full_since(since_s),
            MARGIN * bound_s,
            f"no commit at full size {MARGIN * bound_s:g} s after fault "
            f"{last.number if last is not None else '-'} was over",
        )

    def _wait_rested(self) -> None:
        """Wait until each process at full size has made the steps that clear its slot's record."""
        wanted = self._tail.full_commits + REST_STEPS
        self._wait(
            lambda: self._tail.full_commits >= wanted,
            MARGIN * self._scenario.verdict.full_s,
            f"no {REST_STEPS} commits at full size without a fault",
        )

    def _strike(self, fault: Fault) -> None:
        blow = self._aim(fault)
        at_s = self._strike_when_possible(fault, blow)
        if blow.is_order:
            blow = self._see_carried_out(fault, blow)
            at_s = self._tail.acted[fault.number].at_s
        self._note(
            Struck(
                at_s=at_s,
                number=fault.number,
                kind=fault.kind,
                victim=blow.victim,
                is_overlap=fault.is_overlap,
                recover_s=fault.recover_s,
                changes_world=TRAITS[fault.kind].changes_world,
                for_s=fault.for_s,
                node=blow.node,
                other_node=blow.other_node,
                pid=blow.struck_pid,
            )
        )
        self._say(f"{at_s - self._began_s:8.2f} s  {fault.number:4d} {fault.kind}: {blow.victim}")
        if blow.undo is not None:
            due_s = at_s + fault.for_s
            heapq.heappush(self._undos, (due_s, next(self._order), fault, blow))

    def _strike_when_possible(self, fault: Fault, blow: Blow) -> float:
        """Strike, and return when; what undoes other faults, as etcd's outage, is not held up."""
        at_s = 0.0

        def is_struck() -> bool:
            nonlocal at_s
            at_s = boottime_s()
            return _is_done(blow.strike)

        self._wait(is_struck, AIM_LIMIT_S, f"fault {fault.number} ({fault.kind}) could not be done")
        return at_s

    def _see_carried_out(self, fault: Fault, blow: Blow) -> Blow:
        """Wait until a worker obeyed; a fault before may have ended the one that was to."""

        def is_decided() -> bool:
            return fault.number in self._tail.acted or not blow.is_there()

        why = f"no worker carried out the order of fault {fault.number} ({fault.kind})"
        for _ in range(ORDERS_LIMIT):
            try:
                self._wait(is_decided, AIM_LIMIT_S, why)
            except InVain:
                blow.withdraw()
                raise
            self._tail.read()
            if fault.number in self._tail.acted:
                return blow
            blow.withdraw()
            blow = self._aim(fault)
            blow.strike()
        raise InVain(why)

    def _aim(self, fault: Fault) -> Blow:
        found: list[Blow] = []

        def look() -> bool:
            blow = self._site.aim(fault, self._tail)
            found.extend([blow] if blow is not None else [])
            return blow is not None

        self._wait(look, AIM_LIMIT_S, f"fault {fault.number} ({fault.kind}) found no victim")
        return found[-1]

    # --- the end

    def _end(self) -> None:
        """Let the job end, say goodbye, and see that nothing is left."""
        watch = self._watch
        assert watch is not None
        if self._scenario.job.poison_at_step == 0:
            ahead = int(END_IN_S / max(self._scenario.job.step_sleep_s, 0.005)) + 10
            self._site.end_at(self._tail.newest_step + ahead)
        with suppress(JobOver, InVain):
            self._wait(lambda: False, END_LIMIT_S, "the job did not end")
        newest = watch.newest
        self._note(
            Ended(
                at_s=boottime_s(),
                phase=newest.phase if newest is not None else "unknown",
                message=newest.message if newest is not None else "",
            )
        )
        deadline_s = time.monotonic() + AIM_LIMIT_S
        left = [each[2:] for each in sorted(self._undos)]
        while left and time.monotonic() < deadline_s:
            left = [each for each in left if not self._undo(each, is_restart_wanted=False)]
            time.sleep(TICK_S if left else 0.0)
        for process in self._site.end():
            self._note(
                LeftBehind(
                    at_s=boottime_s(), pid=process.pid, command=f"{process.name} {process.command}"
                )
            )
        self._look_at_lives(is_last=True)
        keep_why(self._site.folder, self._site.urls, self._site.environ(), self._site.job)

    # --- the tick

    def _wait(self, until: Callable[[], bool], limit_s: float, why: str) -> None:
        """Go on until something is so.

        Raises:
            InVain: it did not come, which is noted.
            JobOver: the job ended before.
        """
        deadline_s = time.monotonic() + limit_s
        while True:
            self._pump()
            if until():
                return
            self._check_job()
            if time.monotonic() > deadline_s:
                self._say(f"gave up: {why}")
                self._note(GaveUp(at_s=boottime_s(), why=why))
                raise InVain(why)
            time.sleep(TICK_S)

    def _sleep(self, for_s: float) -> None:
        deadline_s = time.monotonic() + for_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            if left_s > 2 * TICK_S:
                self._pump()
            time.sleep(min(TICK_S, max(0.0, deadline_s - time.monotonic())))

    def _pump(self) -> None:
        self._tail.read()
        self._look_at_lives()
        now_s = boottime_s()
        while self._undos and self._undos[0][0] <= now_s:
            _, number, fault, blow = heapq.heappop(self._undos)
            if not blow.is_undone() or not self._undo((fault, blow)):
                heapq.heappush(self._undos, (now_s + TICK_S, number, fault, blow))
                return

    def _undo(self, what: tuple[Fault, Blow], *, is_restart_wanted: bool = True) -> bool:
        """Return False if it cannot be undone yet."""
        fault, blow = what
        if blow.undo is not None and (is_restart_wanted or not blow.is_restart):
            if not _is_done(blow.undo):
                return False
            self._note(Undone(at_s=boottime_s(), number=fault.number))
        return True

    def _check_job(self) -> None:
        newest = self._watch.newest if self._watch is not None else None
        if newest is not None and newest.phase in FINAL:
            raise JobOver

    def _look_at_lives(self, *, is_last: bool = False) -> None:
        """Note agents that ended, and how long workers of theirs went on."""
        now_s = boottime_s()
        for node in self._lives.begin(self._site.nodes, now_s):
            if not node.is_ending:
                self._agent_ended(node)
        for outlived in self._lives.look(now_s, is_last=is_last):
            self._note(outlived)

    def _agent_ended(self, node: Node) -> None:
        why = f"the agent of {node.name} ended by itself with {node.exit_code}"
        self._say(why)
        self._note(GaveUp(at_s=boottime_s(), why=f"{why}: {node.last_words()}"))
        node.start()

    def _note(self, record: Record) -> None:
        with self._lock:
            if not self._file.closed:
                self._file.write(to_line(record))
                self._file.flush()


def _is_done(deed: Callable[[], None]) -> bool:
    try:
        deed()
    except NotNow:
        return False
    return True


def reference(site: Site, steps: int) -> Path:
    """Make the undisturbed run: the same script, plain, a world of one; return its records.

    Raises:
        ChaosError: it failed, with its last words, or took too long; it leaves no records then.
    """
    folder = site.folder / "reference"
    folder.mkdir()
    limit_s = REFERENCE_LIMIT_S + REFERENCE_STEP_LIMIT_S * steps
    try:
        done = subprocess.run(
            [sys.executable, *spell_script(site.scenario, folder), "--steps", str(steps)],
            cwd=folder,
            env=site.environ(),
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        shutil.rmtree(folder, ignore_errors=True)
        raise ChaosError(
            f"The undisturbed run of {steps} steps took longer than {limit_s:.0f} s: run it again "
            "when this machine has less to do."
        ) from exc
    if done.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        raise ChaosError(f"The undisturbed run failed: {done.stderr.strip()[-400:]}")
    return folder / RANKS_FILE
