"""Turns a copy of the pool into the job's worker: streams, environment, path, threads, randomness.

Some values a process reads once at its start; they cannot be changed afterwards and are the pool's:
sys.flags, the seed of str hashes (all workers of a pool share it), and what imported libraries took
from the environment. So a pool serves one environment; only variables that differ between the ranks
of one job may differ from it.
"""

import atexit
import gc
import importlib
import io
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn

from elasticd.channel.pool import Start, Started, unpack_to_pool
from elasticd.records.job import EntryKind
from elasticd.telemetry.process_title import set_title, worker_title
from elasticd_agent.pool.launch import InheritedState
from elasticd_agent.pool.process.inheritance import drop_inherited
from elasticd_agent.pool.process.mark import MARK, write_mark
from elasticd_agent.pool.process.niceness import can_undo
from elasticd_agent.pool.worker import as_main, raised
from elasticd_agent.pool.worker.output import OutputFile, open_output
from elasticd_agent.pool.worker.report import Report
from elasticd_agent.pool.worker.robust_mutex import RobustMutex
from elasticd_agent.pool.zygote.module_report import ModuleReport
from elasticd_agent.pool.zygote.rank_at_import import renew_ranks

__all__ = ["Inheritance", "become", "main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """The facts that a forked child must know of the pool that forked it."""

    pool_pid: int
    inherited: InheritedState
    mark_room: int
    """Where the worker's name can be written, so that all that descend from it show it."""
    pythonpath: Sequence[str]
    """What the pool's PYTHONPATH put on the search path."""
    is_asked: bool = False
    """True if the worker is to report what it has loaded, once it trains."""


def become(start: Start, report_fd: int, inheritance: Inheritance) -> None:
    """Turn a forked child of the warm pool into the worker, run it, and return at its end."""
    report = Report(start.worker, report_fd)
    with report.refusing():
        drop_inherited({*inheritance.inherited.kept_fds, report_fd}, inheritance.pool_pid)
        write_mark(inheritance.mark_room, start.worker)
        report.move_up()
        _set_up(start)
        if start.entry_kind is EntryKind.COMMAND:
            _exec(start)
        _take_over(inheritance.inherited.environment)
        own_path = as_main.python_path(os.environ, os.getcwd())
        sys.path[:] = as_main.search_path(sys.path, inheritance.pythonpath, own_path)
        _renew_libraries()
        _set_threads(start.threads)
    _run(start, report, is_asked=inheritance.is_asked)


def main(*arguments: str) -> None:
    """Be the worker in a freshly spawned interpreter, for when a fork is not safe."""
    *roots, pool_pid = arguments
    with os.fdopen(3, "rb") as file:
        start = unpack_to_pool(file.read())
    assert isinstance(start, Start)
    report = Report(start.worker, 4)
    with report.refusing():
        drop_inherited({4}, int(pool_pid))
        report.move_up()
        _set_up(start)
        if start.entry_kind is EntryKind.COMMAND:
            _exec(start)
    own = len(roots) + (not sys.flags.safe_path)  # The last is what `python -c` puts in front.
    del sys.path[:own]
    if start.threads > 0:
        # There is no torch yet to call; it reads this when the script imports it.
        os.environ.setdefault("OMP_NUM_THREADS", str(start.threads))
    _run(start, report)


def _set_up(start: Start) -> None:
    """Take the job's folder, files and environment."""
    os.chdir(start.cwd or ".")
    for fd, path in ((1, start.out_path), (2, start.err_path)):
        file_fd = open_output(path)
        os.dup2(file_fd, fd)
        if file_fd != fd:
            os.close(file_fd)
    null_fd = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_fd, 0)
    if null_fd != 0:
        os.close(null_fd)
    os.environ.clear()
    os.environ.update({**start.env, MARK: start.worker})
    if start.niceness and can_undo():
        os.nice(start.niceness)
    if start.entry_kind is not EntryKind.COMMAND:
        set_title(*worker_title(start.env.get("ELASTICD_JOB", ""), start.env.get("RANK")))
    time.tzset()


def _take_over(environment: Mapping[str, str | None]) -> None:
    """Set the variables that imported modules have set, as the imports would have done here."""
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _exec(start: Start) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(start.entry, [start.entry, *start.args], os.environ)  # noqa: S606  # what the user gave
    except OSError as exc:
        raise OSError(exc.errno, f"{start.entry}: {exc.strerror}") from exc


def _run(start: Start, report: Report, *, is_asked: bool = False) -> None:
    _renew_streams()
    mutex = RobustMutex()
    report.send(Started(worker=start.worker, pid=os.getpid(), mutex_fd=mutex.fd))

    def on_raised(exc: BaseException) -> None:
        # A library may abort as the interpreter ends: that must not be told before the error.
        mutex.release()
        with suppress(Exception):  # A report that fails must not hide the script's own error.
            report.send(raised.describe(start.worker, exc))
            raised.write_error_file(start.error_file, exc)

    # Before the script begins, so that it is called after all that the script registers.
    atexit.register(_free_what_is_counted)
    if is_asked:
        is_module = start.entry_kind is EntryKind.MODULE
        own = start.entry.partition(".")[0] if is_module else ""
        report.make_room()
        ModuleReport(start.worker, report.send, script_package=own).watch()
    with _remind_of_saving():
        as_main.run(
            start.entry,
            start.args,
            is_module=start.entry_kind is EntryKind.MODULE,
            on_raised=on_raised,
        )


@contextmanager
def _remind_of_saving() -> Iterator[None]:
    """Warn the user of a script that ends well, was to save, and has saved nothing.

    The check comes at the very end, because a script may save in a handler of atexit.
    """
    own, is_good = os.getpid(), False

    def remind_of_save() -> None:
        if is_good and os.getpid() == own and os.environ.get("ELASTICD_KEEPER"):
            from elasticd.script.save_reminder import remind  # Few scripts need it.

            with suppress(Exception):  # The interpreter ends.
                remind(os.environ)

    atexit.register(remind_of_save)
    try:
        yield
        is_good = True
    except SystemExit as exc:
        is_good = exc.code in (None, 0)
        raise


def _free_what_is_counted() -> None:
    """Let the garbage collector at the interpreter's end find the objects that the pool froze.

    nanobind prints the objects that are left then as leaked, in some 500 lines. The function acts
    only if nanobind was loaded: to search all of torch, in pages shared with the pool, takes half a
    second of a worker's end.
    """
    if any(each.__module__ == "nanobind" for each in object.__subclasses__()):
        gc.unfreeze()


def _renew_streams() -> None:
    """Build stdin, stdout and stderr as `python -u` does, except that a full disk
    raises no error.
    """
    renewed: list[tuple[object, object]] = []
    for name, fd in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        old = getattr(sys, name)
        kind = io.FileIO if fd == 0 else OutputFile
        raw = kind(fd, "r" if fd == 0 else "w", closefd=False)
        raw.name = f"<{name}>"
        stream = io.TextIOWrapper(
            io.BufferedReader(raw) if fd == 0 else raw,
            encoding=getattr(old, "encoding", None) or "utf-8",
            errors=getattr(old, "errors", None) or "strict",
            newline="\n",
            write_through=True,
        )
        stream.mode = "r" if fd == 0 else "w"  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
        renewed.append((old, stream))
    _renew_handlers(renewed)


def _renew_handlers(renewed: Sequence[tuple[object, object]]) -> None:
    """Let the log handlers of imported modules write where the script's own output goes."""
    for reference in getattr(sys.modules.get("logging"), "_handlerList", ()):
        handler = reference()
        for old, stream in renewed:
            if getattr(handler, "stream", None) is old:
                handler.stream = stream


def _renew_libraries() -> None:
    """Undo what libraries drew at random or stored in the pool, and would renew in a new process.

    A seed that a preloaded module set is lost by this; only the script's own seeding counts.
    """
    importlib.invalidate_caches()
    # The fork reseeds Python's own generator, but neither numpy's nor torch's, which both start
    # from the system's randomness (torch's for CUDA has a fixed start and is not made yet).
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()
    if process := sys.modules.get("multiprocessing.process"):
        process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
        process.current_process().authkey = os.urandom(32)
    if tracker := sys.modules.get("multiprocessing.resource_tracker"):
        vars(tracker._resource_tracker).update(_fd=None, _pid=None)
    if tempfile := sys.modules.get("tempfile"):
        tempfile.tempdir = None  # type: ignore[attr-defined]
    renew_ranks()


def _set_threads(threads: int) -> None:
    """Set the number of threads that was asked for, or else the number that a new process would
    use.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if threads <= 0:
        threads = int(first) if first.isdecimal() else len(os.sched_getaffinity(0))
    torch.set_num_threads(max(1, threads))
