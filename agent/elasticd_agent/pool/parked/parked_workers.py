"""The pool's side of parked workers: it has them forked, hands orders to them, and ends them.

If anything is wrong with a parked worker (it has ended, stands still, or differs from a fork made
now), the pool ends it and forks the worker as if there were none.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from signal import SIGKILL

from elasticd.channel.pool import FromPool, NotParked, PoolParked, Start
from elasticd_agent.pool.child import Child
from elasticd_agent.pool.launch import InForkedWorker, InheritedState, Launcher, fork
from elasticd_agent.pool.link import Link
from elasticd_agent.pool.parked.memory_room import PARKED_LIMIT, PRIVATE_LIMIT_BYTES, why_no_room
from elasticd_agent.pool.parked.order import hand_over, has_same_inheritance, is_waiting
from elasticd_agent.pool.parked.parked_process import wait_for_order
from elasticd_agent.pool.process.process_table import look_up, private_bytes

__all__ = ["ParkedWorkers"]

BACKOFF_S = 5.0
"""The time from a worker's start or end until one is forked: a recovery is over by then, and a
worker has mostly said what it loads, which may have a new zygote made."""
SURPLUS_S = 30.0
"""The time from a worker's start or end after which those that are too many are ended."""
ROOM_TICK_S = 10.0
"""The time between two looks at how much memory is free."""
SHORTAGE_S = 600.0
"""The time from a shortage of memory until the next look. What those that are ended give back may
be all that was missing, and they would be forked and ended without end."""
READY_LIMIT_S = 60.0
"""How long one may take from its fork until it waits. The pool does not wait for it."""
LOSSES_LIMIT = 12
"""After so many events in a row in which some ended, or did not answer, none is parked for long."""
FORGET_S = 3600.0
"""The time without a loss after which the losses before it do not count."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Parked:
    link: Link
    source: int
    forked_s: float
    pid: int
    """0 until it has said it: where a zygote forks it, nobody else knows."""
    is_ready: bool = False
    size_bytes: int = 0


@dataclass(slots=True)
class ParkedWorkers:
    launcher: Launcher
    send: Callable[[FromPool], None]
    why_no_room: Callable[[], str] = why_no_room
    _parked: list[_Parked] = field(default_factory=list)
    _changed_s: float = -inf
    """When a worker started or ended."""
    _due_s: float = -inf
    """When the next may be forked."""
    _is_told: bool = False
    """True if the agent knows how many there are."""
    _losses: int = 0
    _lost_s: float = -inf
    """When the last loss was counted."""
    _too_large: int | None = None
    """The source whose forks take too much memory."""
    _has_room: bool = True
    _look_s: float = -inf
    """When it is looked for room again."""
    _told_reasons: set[str] = field(default_factory=set)
    _ended: set[int] = field(default_factory=set)
    """Those that were killed and are not reaped yet."""

    @property
    def pids(self) -> set[int]:
        """Return the process numbers of the pool's parked children, which are no workers yet."""
        return {each.pid for each in self._parked if each.pid} | self._ended

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(each.link for each in self._parked)

    @property
    def is_forking(self) -> bool:
        """Return True if a zygote was asked for a process that has not reported that it waits."""
        return any(each.source and not each.is_ready for each in self._parked)

    def back_off(self, now_s: float) -> None:
        """Take note that a worker starts or ends: no worker is parked for some time."""
        self._changed_s = now_s
        self._due_s = now_s + BACKOFF_S

    def reconcile(
        self,
        now_s: float,
        wanted: int | None,
        source: int = 0,
        ask: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Read the parked workers' reports, end those of another source, and park one more if it is
        due.

        `wanted` is how many there should be, None while the number is about to change. `source` is
        the zygote from which the next workers come, 0 the pool itself. `ask` has the zygote fork a
        process that talks over this descriptor.

        Raises: InForkedWorker: in a worker that was parked.
        """
        for each in list(self._parked):
            self._read_reports(each, now_s)
            if each not in self._parked:
                continue
            if each.source != source:
                self._end(each)
            elif not each.is_ready and now_s - each.forked_s > READY_LIMIT_S:
                self._lose(each, now_s, "it did not wait for an order in time")
        if wanted is None:
            return
        wanted = min(wanted, PARKED_LIMIT)
        self._end_surplus(wanted, now_s)
        are_ready = all(each.is_ready for each in self._parked)
        if wanted and are_ready and len(self._parked) >= wanted and not self._is_told:
            self._is_told = True
            size = max(each.size_bytes for each in self._parked)
            self.send(PoolParked(workers=len(self._parked), private_bytes=size))
        is_due = now_s >= self._due_s and are_ready
        if now_s - self._lost_s >= FORGET_S:
            self._losses = 0
        is_allowed = self._losses < LOSSES_LIMIT and source != self._too_large and self._has_room
        if len(self._parked) < wanted and is_due and is_allowed:
            try:
                self._fork(source, ask, now_s)
            except OSError as exc:
                self._count_loss(now_s, f"no process could be forked: {exc.strerror or exc}")

    def launch(self, start: Start, source: int, now_s: float) -> Child | None:
        """Hand an order to a parked worker that equals a fork made now; None if there is none.

        A parked worker that does not answer costs time, and the others may not answer either: all
        are ended.
        """
        for each in list(self._parked):
            if each.source != source or not each.is_ready:
                continue
            if not is_waiting(each.pid):
                self._lose(each, now_s, "it ended, or stood still")
                continue
            if not has_same_inheritance(each.pid, source or os.getpid()):
                self._end(each)
                continue
            try:
                report_fd = hand_over(each.link.read_fd, start)
            except OSError as exc:
                self._lose(each, now_s, exc.strerror or str(exc))
                self.end()
                return None
            self._parked.remove(each)
            each.link.close()
            self._losses = 0
            return Child(start=start, pid=each.pid, report=Link(report_fd))
        return None

    def on_exit(self, pid: int, now_s: float) -> None:
        """Take note that a child of the pool was reaped."""
        self._ended.discard(pid)
        for each in list(self._parked):
            if each.pid == pid:
                each.pid = 0  # The number may be another's by now.
                self._lose(each, now_s, "it ended")

    def end(self) -> None:
        for each in list(self._parked):
            self._end(each)

    # --- private ------------------------------------------------------------------------------

    def _fork(self, source: int, ask: Callable[[int], None], now_s: float) -> None:
        ours, theirs = (end.detach() for end in socket.socketpair())
        try:
            pid = 0
            if source:
                ask(theirs)
            else:
                pid = fork()
                if pid == 0:
                    kept_fds = self.launcher.kept_fds
                    start, report_fd, _ = wait_for_order(theirs, kept_fds, self.launcher.pool_pid)
                    raise InForkedWorker(start, report_fd, InheritedState(kept_fds=kept_fds))
        except OSError:
            os.close(ours)
            raise
        finally:
            # A worker has another file at this number by the time at which it comes here.
            if os.getpid() == self.launcher.pool_pid:
                os.close(theirs)
        self._is_told = False
        self._parked.append(_Parked(link=Link(ours), source=source, forked_s=now_s, pid=pid))

    def _read_reports(self, parked: _Parked, now_s: float) -> None:
        for line in parked.link.read_lines():
            said = int(line) if line.strip().isdigit() else 0
            found = look_up(said)
            if found is None or found.parent != os.getpid() or parked.pid not in (0, said):
                break
            parked.pid, parked.is_ready = said, True
            parked.size_bytes = size = private_bytes(said)
            if size > PRIVATE_LIMIT_BYTES:
                self._too_large = parked.source
                self._explain(f"one takes {size >> 20} MiB that it shares with no other process")
                self._end(parked)
                return
        if parked.link.is_over and parked in self._parked:
            self._lose(parked, now_s, "it ended")

    def _end_surplus(self, wanted: int, now_s: float) -> None:
        """End parked workers that outnumber workers for some time, and all if memory is short."""
        if now_s - self._changed_s >= SURPLUS_S:
            for each in self._parked[wanted:]:
                self._end(each)
        if (wanted or self._parked) and now_s >= self._look_s and now_s >= self._due_s:
            reason = self.why_no_room()
            self._has_room = not reason
            self._look_s = now_s + (SHORTAGE_S if reason else ROOM_TICK_S)
            if reason:
                self._explain(reason)
                self.end()

    def _lose(self, parked: _Parked, now_s: float, why: str) -> None:
        """End a parked worker that cannot be used; the next is not forked at once."""
        self._end(parked)
        self._count_loss(now_s, why)

    def _count_loss(self, now_s: float, why: str) -> None:
        """Count one loss: parked workers lost within the time of a fork have the same cause."""
        if now_s - self._lost_s >= BACKOFF_S:
            self._losses += 1
            self._lost_s = now_s
        self._due_s = max(self._due_s, now_s + BACKOFF_S)
        if self._losses >= LOSSES_LIMIT:
            self._explain(f"{self._losses} times in a row one was lost; the last time {why}")

    def _explain(self, reason: str) -> None:
        """Log why no worker is parked, each reason once."""
        if reason not in self._told_reasons:
            self._told_reasons.add(reason)
            self.send(NotParked(why=reason))

    def _end(self, parked: _Parked) -> None:
        if parked.pid:
            self._ended.add(parked.pid)
            with suppress(ProcessLookupError):
                os.kill(parked.pid, SIGKILL)
        parked.link.close()  # One whose number is not known yet ends by that.
        self._parked.remove(parked)
