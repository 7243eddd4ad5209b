"""The pool's loop: starts workers, reaps them, and ends all of them when nobody may own them.

One thread, one poll(), no wait without a limit. Everything that is known about a worker comes from
its pipe, from waitpid() and from /proc; the pool reports to the agent only what it has seen.

Three things end all workers at once: the agent's connection ends, SIGTERM (the kernel sends it when
the agent dies), and a license that runs out, which works while the agent is stopped too.
"""

import math
import os
import select
import signal
import sys
import time
from dataclasses import replace

from elasticd.channel.pool import (
    Exited,
    FromPool,
    KeepStores,
    License,
    ModulesLoaded,
    PoolReady,
    Raised,
    Start,
    Started,
    StartFailed,
    Stop,
    unpack_from_pool,
    unpack_to_pool,
)
from elasticd.channel.wire import pack
from elasticd.errors import InvariantBroken
from elasticd_agent.pool.child import Child
from elasticd_agent.pool.launch import Launcher
from elasticd_agent.pool.link import Link
from elasticd_agent.pool.parked.parked_workers import ParkedWorkers
from elasticd_agent.pool.process.mark import NAME_LIMIT_BYTES
from elasticd_agent.pool.process.process_table import children_of, is_being_freed, look_up
from elasticd_agent.pool.process.subtree import Subtree
from elasticd_agent.pool.store_host_supervisor import StoreHostSupervisor
from elasticd_agent.pool.warmup import WarmupResult
from elasticd_agent.pool.zygote.zygote_supervisor import ZygotePlan, ZygoteSupervisor

__all__ = ["Guardian"]

_TICK_S = 1.0
"""Longest sleep: poll() does not count a machine's suspension, the license's clock does."""
_SWEEP_TICK_S = 0.02
"""Between two looks at what was killed and is not gone; mostly SIGCHLD comes earlier."""


class Guardian:
    """Start, watch and kill the workers of one job, as the agent says.

    All workers are killed when the agent ends, or when their license is over.
    """

    def __init__(
        self, agent: Link, launcher: Launcher, warmup: WarmupResult, plan: ZygotePlan | None = None
    ) -> None:
        """`plan` is how to learn from workers that train; None: the pool learns nothing."""
        self._agent = agent
        self._launcher = launcher
        self._warmup = warmup
        self._stores = StoreHostSupervisor(launcher, self._send)
        self._zygotes = ZygoteSupervisor(plan, self._send) if plan is not None else None
        self._parked = ParkedWorkers(launcher, self._send)
        self._children: dict[str, Child] = {}
        self._given_up: set[int] = set()
        """Killed, not gone, and reported all the same."""
        self._license_until_s = math.inf
        self._is_ending = False
        self._wake_fd = _catch_signals()

    def run(self) -> None:
        """Serve the agent until the agent is gone and no process of any worker is left.

        Raises:
            InForkedWorker: in a forked worker, which must leave this stack at once.
        """
        self._send(
            PoolReady(
                pid=os.getpid(),
                import_s=self._warmup.import_s,
                can_fork=self._warmup.can_fork,
            )
        )
        if self._zygotes is not None:
            self._zygotes.recall()
        while not (self._is_ending and not self._children):
            self._wait()
            self._read_agent()
            for child in self._children.values():
                self._read_worker(child)
            self._reap()
            self._check_clocks()
            self._sweep()
            self._stores.reconcile(time.monotonic())
            if self._zygotes is not None:
                self._zygotes.reconcile(time.monotonic())
            self._park()
        for pid in children_of(os.getpid()):
            Subtree().kill(pid)

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._wake_fd, select.POLLIN)
        if not self._agent.is_over:
            wanted = select.POLLOUT if self._agent.has_unsent else 0
            poll.register(self._agent.read_fd, select.POLLIN | wanted)
        links = [child.report for child in self._children.values()]
        links += [
            *self._parked.links,
            *self._stores.links,
            *(self._zygotes.links if self._zygotes is not None else ()),
        ]
        for link in links:
            if not link.is_over:
                poll.register(link.read_fd, select.POLLIN)
        poll.poll(math.ceil(1000 * self._time_to_sleep_s()))
        try:
            signals = os.read(self._wake_fd, 4096)
        except BlockingIOError:
            signals = b""
        if signal.SIGTERM in signals:
            self._end_all()

    def _time_to_sleep_s(self) -> float:
        if any(child.is_dead for child in self._children.values()):
            return _SWEEP_TICK_S
        kill_times = [c.kill_at_s for c in self._children.values() if c.kill_at_s is not None]
        waits = [kill_at_s - time.monotonic() for kill_at_s in kill_times]
        if self._children:
            waits.append(self._license_until_s - _boottime_s())
        return max(0.0, min([_TICK_S, *waits]))

    # --- what others say ----------------------------------------------------------------------

    def _read_agent(self) -> None:
        self._agent.flush()
        lines = self._agent.read_lines()
        if self._agent.is_over:
            self._end_all()  # What it asked for just before its end does not count any more.
            return
        for line in lines:
            try:
                message = unpack_to_pool(line)
            except InvariantBroken as exc:
                # Orders that are not understood cannot be carried out, and the workers must not
                # run without an owner.
                print(f"elasticd pool: {exc}", file=sys.stderr)  # noqa: T201
                self._end_all()
                return
            match message:
                case Start():
                    self._start(message)
                case Stop():
                    self._stop(message)
                case License():
                    self._license_until_s = message.until_s
                case KeepStores():
                    self._stores.apply(message)

    def _start(self, start: Start) -> None:
        refusal = self._refusal(start)
        if not refusal:
            try:
                self._children[start.worker] = self._launch(start)
            except OSError as exc:
                refusal = f"No process could be started: {exc.strerror or exc}."
        if refusal:
            self._send(StartFailed(worker=start.worker, message=refusal))

    def _launch(self, start: Start) -> Child:
        """Start a worker: a parked one, else a fork of the zygote, else a fork of the pool."""
        now_s, zygotes = time.monotonic(), self._zygotes
        self._parked.back_off(now_s)
        child = self._parked.launch(start, zygotes.source_of(start) if zygotes else 0, now_s)
        if child is None and zygotes is not None:
            child = zygotes.launch(start, is_parking=self._parked.is_forking)
        return child or self._launcher.launch(start)

    def _park(self) -> None:
        """Keep as many parked workers as there are workers, while all of those run."""
        if not self._launcher.can_park or self._is_ending:
            return
        children, zygotes = self._children.values(), self._zygotes
        is_quiet = all(child.has_answered and not child.is_ending for child in children)
        if zygotes is None:
            self._parked.reconcile(time.monotonic(), len(children) if is_quiet else None)
            return
        wanted = len(children) if is_quiet and not zygotes.is_changing else None
        source = zygotes.source
        for child in children:
            source = zygotes.source_of(child.start)  # The next ones are as the last one was.
        self._parked.reconcile(time.monotonic(), wanted, source, zygotes.park)

    def _refusal(self, start: Start) -> str:
        if self._is_ending:
            return "The pool is ending."
        if self._license_until_s <= _boottime_s():
            return "The license to run workers is over: this node has lost its lease."
        if start.worker in self._children:
            return f"A worker {start.worker!r} runs already."
        if len(start.worker.encode()) > NAME_LIMIT_BYTES:
            return f"The worker's name is longer than {NAME_LIMIT_BYTES} bytes."
        return ""

    def _stop(self, stop: Stop) -> None:
        child = self._children.get(stop.worker)
        if child is None or child.is_dead:
            return  # It ended by itself meanwhile; Exited is on its way.
        if stop.grace_s <= 0:
            child.kill()
            return
        child.terminate()
        kill_at_s = time.monotonic() + stop.grace_s
        child.kill_at_s = kill_at_s if child.kill_at_s is None else min(child.kill_at_s, kill_at_s)

    def _read_worker(self, child: Child) -> None:
        for line in child.report.read_lines():
            try:
                message = unpack_from_pool(line)
            except InvariantBroken:
                continue  # The script wrote into a descriptor that it does not know.
            match message:
                case Started(mutex_fd=mutex_fd):
                    self._answer(child, mutex_fd)
                case ModulesLoaded() if self._zygotes is not None:
                    self._zygotes.learn(message, child.start, time.monotonic())
                case StartFailed() if not child.has_answered:
                    child.has_answered = child.is_refused = True
                    self._send(replace(message, worker=child.name))
                case Raised():
                    self._answer(child)
                    self._send(replace(message, worker=child.name))
        if child.report.is_over:
            self._answer(child)  # An exec closes the pipe without a word: the command runs.

    def _answer(self, child: Child, mutex_fd: int = -1) -> None:
        if not child.has_answered:
            child.has_answered = True
            self._send(Started(worker=child.name, pid=child.pid, mutex_fd=mutex_fd))

    # --- ends -----------------------------------------------------------------------------------

    def _reap(self) -> None:
        by_pid = {child.pid: child for child in self._children.values() if not child.is_dead}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._given_up.discard(pid)
            self._parked.on_exit(pid, time.monotonic())
            if self._zygotes is not None:
                self._zygotes.on_exit(pid)
            if pid == self._stores.pid:
                self._stores.on_exit(time.monotonic())
            elif pid in by_pid:
                child = by_pid.pop(pid)
                child.code = os.waitstatus_to_exitcode(status)
                child.expect_end()
                self._parked.back_off(time.monotonic())
                self._read_worker(child)  # Its last words come before its end.
                self._answer(child)

    def _check_clocks(self) -> None:
        now_s = time.monotonic()
        for child in self._children.values():
            if child.kill_at_s is not None and child.kill_at_s <= now_s:
                child.kill()
            is_overdue = not child.is_dead and child.give_up_at_s <= now_s
            if is_overdue and not is_being_freed(child.pid):
                self._given_up.add(child.pid)
                child.code = -signal.SIGKILL
        if self._license_until_s <= _boottime_s():
            self._kill_all()

    def _sweep(self) -> None:
        """Kill the processes that dead workers left; report the workers that have none left."""
        dead = [child for child in self._children.values() if child.is_dead]
        if not dead:
            return
        holding = {child.name for child in dead if not child.subtree.is_gone()}
        for pid in set(children_of(os.getpid())) - self._given_up:
            owner = self._owner_of_orphan(pid)
            if owner is not None and owner.is_dead:
                owner.subtree.kill(pid)
                holding.add(owner.name)
        now_s = time.monotonic()
        for child in dead:
            if child.name in holding and now_s < child.give_up_at_s:
                continue
            del self._children[child.name]
            child.report.close()
            if not child.is_refused:
                self._send(Exited(worker=child.name, code=child.code or 0))

    def _owner_of_orphan(self, pid: int) -> Child | None:
        """Return the worker from which a child of the pool descends; None if the pool forked it
        itself.
        """
        children = list(self._children.values())
        if pid in self._parked.pids:
            return None
        if pid == self._stores.pid or any(pid == c.pid and not c.is_dead for c in children):
            return None
        process = look_up(pid)
        if process is None:
            return None
        zygotes = () if self._zygotes is None else self._zygotes.pids
        if pid in zygotes or process.session in zygotes:
            return None  # One in its session is about to be parked: it has not said its number.
        for child in children:
            if child.owns(pid, process.session):
                return child
        # It left its session and its environment. Nobody's for certain, until nobody else is left.
        return children[-1] if all(child.is_dead for child in children) else None

    def _end_all(self) -> None:
        if not self._is_ending:
            self._is_ending = True
            self._stores.end()
            if self._zygotes is not None:
                self._zygotes.end()
            self._kill_all()

    def _kill_all(self) -> None:
        self._parked.end()
        for child in self._children.values():
            child.kill()

    def _send(self, message: FromPool) -> None:
        self._agent.write(pack(message))


def _catch_signals() -> int:
    """Have signals wake the loop; return the descriptor that delivers their numbers."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        # A terminal's Ctrl-C is the agent's to judge: it stops workers in its own order.
        signal.signal(number, signal.SIG_IGN)
    return read_fd


def _boottime_s() -> float:
    """Return the time since boot in seconds; it goes on while the machine sleeps, as leases do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
