"""The pool's side of the zygote: it forks a zygote, replaces it if a package is at fault, and asks
it for workers.

At most one zygote serves and one is being made. If anything goes wrong with either, workers are
forked from the pool itself, as before anything was learned.
"""

import os
import select
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from signal import SIGKILL

from elasticd.channel.pool import FromPool, ModulesLoaded, PoolLearned, Start
from elasticd.errors import InvariantBroken
from elasticd.records.job import EntryKind
from elasticd_agent.pool.child import Child
from elasticd_agent.pool.launch import fork
from elasticd_agent.pool.link import Link
from elasticd_agent.pool.process.process_table import children_of, pss_bytes
from elasticd_agent.pool.start_order import send_order
from elasticd_agent.pool.zygote.learned_set import LearnedSet, Script
from elasticd_agent.pool.zygote.word import Failed, Importing, Ready, unpack_word
from elasticd_agent.pool.zygote.zygote import FORK, PARK, ZygoteOrder, be_zygote

__all__ = ["ZygoteSupervisor", "ZygotePlan"]

DEBOUNCE_S = 1.0
"""The time from one worker's report until the imports begin, in which the other workers of this
node report too."""
TRIALS_LIMIT = 12
"""How many zygotes are made in the life of a pool; each costs the imports once more."""
ANSWER_LIMIT_S = 1.0
"""How long the pool waits for a worker that it asked for. It does nothing else meanwhile."""
FORKS_OF_PARK = 3
"""The forks until a worker is there where one more process is to be parked before it."""
SILENCE_LIMIT_S = 600.0
"""How long the import of one package may take: training may keep the machine busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZygotePlan:
    """What a pool needs to know in order to learn."""

    script: Script
    record_folder: str
    pool_pid: int
    kept_fds: Collection[int]
    environment: Mapping[str, str]
    """The environment in which the pool was started and imports."""


@dataclass(slots=True, kw_only=True)
class _Zygote:
    pid: int
    link: Link
    order: ZygoteOrder
    package: str = ""
    heard_s: float
    ready: Ready | None = None
    is_reaped: bool = False
    """True if its process number may belong to another process by now."""


@dataclass(slots=True)
class ZygoteSupervisor:
    plan: ZygotePlan
    send: Callable[[FromPool], None]
    _serving: _Zygote | None = None
    _making: _Zygote | None = None
    _next: ZygoteOrder | None = None
    _due_s: float = 0.0
    _trials: int = 0
    _learned: LearnedSet = field(default_factory=LearnedSet)
    _has_answered: bool = True
    """True if the zygote has forked a worker since it was last asked for one to be parked."""
    _ended: set[int] = field(default_factory=set)
    """The zygotes that were killed and are not reaped yet."""

    @property
    def pids(self) -> set[int]:
        """Return the process numbers of the pool's children that are not workers."""
        both = (self._serving, self._making)
        return {each.pid for each in both if each and not each.is_reaped} | self._ended

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(each.link for each in (self._serving, self._making) if each)

    @property
    def source(self) -> int:
        """Return the zygote from which workers are forked; 0: they are forked from the pool."""
        return self._serving.pid if self._serving is not None else 0

    def source_of(self, start: Start) -> int:
        """Return the zygote from which this worker is to be forked; 0: the pool."""
        zygote = self._serving
        return zygote.pid if zygote is not None and self._is_true_for(zygote, start) else 0

    @property
    def is_changing(self) -> bool:
        """Return True if workers are soon to be forked from another zygote."""
        return self._making is not None or self._next is not None

    def park(self, control_fd: int) -> None:
        """Have the zygote fork a worker that waits for its order at this descriptor.

        Raises: OSError: the zygote cannot be asked.
        """
        if self._serving is None:
            raise ConnectionError("There is no zygote.")
        with socket.socket(fileno=os.dup(self._serving.link.read_fd)) as control:
            socket.send_fds(control, [PARK], [control_fd])
        self._has_answered = False

    def recall(self) -> None:
        """Begin to import the packages that the node knows from an earlier run."""
        self._next = ZygoteOrder(script=self.plan.script, record_folder=self.plan.record_folder)

    def learn(self, report: ModulesLoaded, start: Start, now_s: float) -> None:
        """Add the modules that a worker that trains has loaded."""
        more = self._learned.with_more(
            report.modules, variables=report.variables, differing=self._differing(start)
        )
        if more != self._learned and set(more.modules) != set(self._learned.modules):
            self._due_s = now_s + DEBOUNCE_S
            self._next = ZygoteOrder(
                script=self.plan.script,
                record_folder=self.plan.record_folder,
                learned=more,
                set_by_script=dict(report.variables),
            )
        self._learned = more

    def reconcile(self, now_s: float) -> None:
        """Read the reports of the zygote that is being made, and begin the steps that are due.

        Raises: InForkedWorker: in a worker that was forked from a zygote.
        """
        for each in (self._serving, self._making):
            if each is not None:
                self._read_reports(each, now_s)
        is_overdue = self._making is not None and now_s - self._making.heard_s > SILENCE_LIMIT_S
        if is_overdue and self._making is not None:
            self._discard(self._making)
        if self._next is None or self._making is not None or now_s < self._due_s:
            return
        order, self._next = self._next, None
        if self._trials < TRIALS_LIMIT:
            self._trials += 1
            with suppress(OSError):  # No process, no descriptor: nothing is learned for now.
                self._making = self._begin(order, now_s)

    def launch(self, start: Start, *, is_parking: bool = False) -> Child | None:
        """Have a worker forked from the zygote; None means that it must be forked from the pool.

        `is_parking` says that the zygote may be about to fork a process to park.
        """
        zygote = self._serving
        if zygote is None or not self._is_true_for(zygote, start):
            return None
        try:
            # It carries out orders one after the other: the first answer says that this was forked.
            is_first = is_parking and not self._has_answered
            limit_s = ANSWER_LIMIT_S * (FORKS_OF_PARK if is_first else 1)
            child = _ask(zygote.link.read_fd, start, limit_s)
        except (OSError, ValueError):
            self._discard(zygote)
            return None
        self._has_answered = True
        return child

    def on_exit(self, pid: int) -> None:
        """Take note that a child of the pool was reaped."""
        self._ended.discard(pid)
        for each in (self._serving, self._making):
            if each is not None and each.pid == pid:
                each.is_reaped = True  # The end of its link says so once more.

    def end(self) -> None:
        self._next, self._trials = None, TRIALS_LIMIT
        for each in (self._serving, self._making):
            if each is not None:
                self._discard(each)

    # --- private ------------------------------------------------------------------------------

    def _begin(self, order: ZygoteOrder, now_s: float) -> _Zygote:
        # Bare numbers: an object would be collected in a worker, and close the worker's own file.
        ours_fd, control_fd = (end.detach() for end in socket.socketpair())
        try:
            pid = fork()
        except OSError:
            os.close(control_fd)
            os.close(ours_fd)
            raise
        if pid == 0:
            plan = self.plan
            be_zygote(order, control_fd, pool_pid=plan.pool_pid, kept_fds=plan.kept_fds)
        os.close(control_fd)
        return _Zygote(pid=pid, link=Link(ours_fd), order=order, heard_s=now_s)

    def _read_reports(self, zygote: _Zygote, now_s: float) -> None:
        for line in zygote.link.read_lines():
            try:
                word = unpack_word(line)
            except InvariantBroken:
                self._discard(zygote)
                return
            zygote.heard_s = now_s
            match word:
                case Importing(package=package):
                    zygote.package = package
                case Failed():
                    zygote.package = ""
                    self._failed(zygote, word)
                case Ready():
                    self._serve(zygote, word)
        if zygote.link.is_over:
            if zygote is self._making and zygote.package:
                why = "the process that imports it ends"
                self._failed(zygote, Failed(why=why, package=zygote.package))
            self._discard(zygote)

    def _failed(self, zygote: _Zygote, failed: Failed) -> None:
        """Try again without the package at fault, or search for that package."""
        learned = failed.learned if failed.learned.modules else self._learned
        again = replace(zygote.order, learned=learned)
        print(f"elasticd pool: {failed.package}: {failed.why}", file=sys.stderr)  # noqa: T201
        if failed.package:
            self._learned = learned.without(failed.package, failed.why)
            self._next = self._next or replace(again, learned=self._learned)
        elif not zygote.order.is_careful:
            self._next = self._next or replace(again, is_careful=True)

    def _serve(self, zygote: _Zygote, ready: Ready) -> None:
        """Fork workers from this zygote from now on, and end the zygote before."""
        if self._serving is not None:
            self._discard(self._serving)
        self._serving, self._making = zygote, None
        zygote.ready, zygote.package = ready, ""
        self._learned = replace(
            self._learned.with_more(
                ready.learned.modules, ready.learned.variables, ready.learned.differing
            ),
            left_out={**ready.learned.left_out, **self._learned.left_out},
        )
        self.send(
            PoolLearned(
                pid=zygote.pid,
                modules=ready.modules,
                import_s=ready.import_s,
                pss_bytes=pss_bytes(zygote.pid),
                left_out=self._learned.left_out,
            )
        )

    def _discard(self, zygote: _Zygote) -> None:
        if not zygote.is_reaped:
            self._ended.add(zygote.pid)
            # Its own children are no workers, those are ours. They end with it, but for one that
            # was stopped before it could ask for that.
            for pid in (*children_of(zygote.pid), zygote.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, SIGKILL)
        zygote.link.close()
        if zygote is self._serving:
            self._serving = None
        if zygote is self._making:
            self._making = None

    def _differing(self, start: Start) -> set[str]:
        own = self.plan.environment
        return {k for k in {*own, *start.env} if own.get(k) != start.env.get(k)}

    def _is_true_for(self, zygote: _Zygote, start: Start) -> bool:
        """Return whether the variables that packages read at import have the same values in this
        worker.
        """
        if zygote.ready is None or start.entry_kind is EntryKind.COMMAND:
            return False
        own = self.plan.environment
        names = ("PYTHONPATH", *zygote.ready.reads)
        return all(own.get(name) == start.env.get(name) for name in names)


def _ask(control_fd: int, start: Start, limit_s: float) -> Child:
    """Ask for a worker, and let the worker run once its process number is known.

    Raises: OSError: there is no answer. ValueError: the answer makes no sense.
    """
    with ExitStack() as stack:
        go_fd, release_fd = os.pipe()
        stack.callback(os.close, go_fd)
        stack.callback(os.close, release_fd)
        read_fd = stack.enter_context(send_order(control_fd, FORK, start, go_fd))
        pid = int(_answer(control_fd, limit_s))
        os.write(release_fd, b"g")
    return Child(start=start, pid=pid, report=Link(read_fd))


def _answer(control_fd: int, limit_s: float) -> bytes:
    """Read one line within the time limit."""
    poll = select.poll()
    poll.register(control_fd, select.POLLIN)
    answer = b""
    while not answer.endswith(b"\n"):
        if not poll.poll(1000 * limit_s):
            raise TimeoutError("The zygote does not answer.")
        chunk = os.read(control_fd, 64)
        if not chunk:
            raise ConnectionError("The zygote has ended.")
        answer += chunk
    return answer
