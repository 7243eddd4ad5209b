"""A child of the pool that imports the learned packages, and then forks workers when the pool asks.

A process that it forks must become the pool's child, as all workers are: the pool reaps and guards
them, and they end with it. So a stand-by process, forked before it is needed, forks the worker and
ends at once; the pool adopts orphans, and so becomes the worker's parent. A worker runs nothing
before the pool knows it, because a worker that was given up might otherwise run beside another.
Rejected: clone(CLONE_PARENT), which skips what the C library and Python do at a fork.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NoReturn

from elasticd.channel.pool import Start
from elasticd.channel.wire import pack
from elasticd.telemetry.process_title import set_title
from elasticd_agent.pool.launch import InForkedWorker, InheritedState, exec_worker, fork
from elasticd_agent.pool.parked.parked_process import wait_for_order
from elasticd_agent.pool.process.inheritance import drop_inherited, open_fds, wait_for_adoption
from elasticd_agent.pool.process.niceness import can_undo
from elasticd_agent.pool.process.prctl import ask_for_signal_at_parents_end
from elasticd_agent.pool.start_order import read_order
from elasticd_agent.pool.zygote.fork_safety import answers
from elasticd_agent.pool.zygote.import_trial import Loaded, Unsound, import_packages
from elasticd_agent.pool.zygote.learned_set import (
    LearnedSet,
    Script,
    load,
    package_of,
    record_path,
    save,
    shadowed,
)
from elasticd_agent.pool.zygote.word import Failed, Importing, Ready

__all__ = ["FORK", "PARK", "ZygoteOrder", "be_zygote"]

NICENESS = 10
"""Training processes come first; but on a node whose cores all train, the imports must still come
to an end."""
RECALL_NICENESS = 19
"""The niceness of imports while the first workers start, which they must not slow down."""
FORK_TRIES = 50
"""How often a zygote tries to have a process stand by, before it ends."""
FORK_PAUSE_S = 0.1
FORK = b"f"
PARK = b"p"
_FDS = {FORK: 3, PARK: 1}
"""The orders to the stand-by process, and how many descriptors come with each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZygoteOrder:
    script: Script
    record_folder: str
    learned: LearnedSet | None = None
    """What was learned; None if the node is to use what it knows from an earlier run."""
    set_by_script: Mapping[str, str] | None = None
    is_careful: bool = False


def be_zygote(
    order: ZygoteOrder, control_fd: int, *, pool_pid: int, kept_fds: Collection[int]
) -> NoReturn:
    """Be the zygote in a child that was just forked from the pool.

    Raises: InForkedWorker: in a worker that was forked from here.
    """
    try:
        drop_inherited({*kept_fds, control_fd}, pool_pid)
        set_title("elasticd: zygote", "zygote")
        priority = os.getpriority(os.PRIO_PROCESS, 0)
        if can_undo():
            os.nice(RECALL_NICENESS if order.learned is None else NICENESS)
        before = _packages()
        loaded = _load(order, control_fd, priority)
        os.setpriority(os.PRIO_PROCESS, 0, priority)
        # What the pool itself had loaded stands before any file of the script, as ever.
        added = _packages() - before
        _serve(order.script, loaded, added, control_fd, pool_pid=pool_pid)
    except InForkedWorker:
        raise
    except BaseException as exc:
        with suppress(OSError):
            os.write(control_fd, pack(Failed(why=f"{type(exc).__name__}: {exc}")))
    os._exit(1)


def _load(order: ZygoteOrder, control_fd: int, priority: int) -> Loaded:
    path = record_path(order.record_folder, order.script)
    known = load(path)
    learned = known
    if order.learned is not None:
        learned = replace(order.learned, left_out={**known.left_out, **order.learned.left_out})
    elif not known.modules:
        os._exit(0)  # Nothing is known: there is nothing to be imported ahead.
    wanted, before = learned, _packages()
    for package in shadowed(learned.packages(), order.script.first_folder):
        wanted = wanted.without(package, "the script's folder has one of the same name")
    try:
        loaded = import_packages(
            wanted,
            differing=frozenset(learned.differing),
            set_by_script=order.set_by_script,
            is_careful=order.is_careful,
            began=lambda package: _send(control_fd, Importing(package=package)),
            priority=priority,
        )
    except Unsound as exc:
        _send(control_fd, Failed(package=exc.package, why=exc.why, learned=learned))
        os._exit(1)
    if mine := shadowed(_packages() - before, order.script.first_folder):
        why = f"what is imported includes {', '.join(sorted(mine))}, as is in the script's folder"
        _send(control_fd, Failed(why=why, learned=learned))
        os._exit(1)
    if not answers(priority):
        _send(control_fd, Failed(why="no forked process answers", learned=learned))
        os._exit(1)
    save(path, learned)
    ready = Ready(
        modules=loaded.modules,
        import_s=loaded.import_s,
        reads=tuple(sorted(loaded.reads)),
        learned=learned,
    )
    _send(control_fd, ready)
    return loaded


def _serve(
    script: Script, loaded: Loaded, packages: frozenset[str], control_fd: int, *, pool_pid: int
) -> None:
    """Keep one stand-by process that forks the next worker; return when the pool ends."""
    own_pid = os.getpid()
    inherited = InheritedState(
        kept_fds=frozenset(open_fds() - {control_fd}), environment=loaded.environment
    )
    while True:
        pid = _fork_patiently()
        if pid == 0:
            start, report_fd, order_fd = _wait_as_parked(
                control_fd, own_pid=own_pid, pool_pid=pool_pid, kept_fds=inherited.kept_fds
            )
            if shadowed(packages, script.first_folder):
                exec_worker(start, order_fd, report_fd, pool_pid)  # Files came since the import.
            raise InForkedWorker(start, report_fd, inherited)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            return


def _fork_patiently() -> int:
    """Fork; try again where the system gives no process, since it may give one soon.

    Raises: OSError: the system gives none for some time.
    """
    for _ in range(FORK_TRIES - 1):
        with suppress(OSError):
            return fork()
        time.sleep(FORK_PAUSE_S)
    return fork()


def _wait_as_parked(
    control_fd: int, *, own_pid: int, pool_pid: int, kept_fds: Collection[int]
) -> tuple[Start, int, int]:
    """Wait for an order, fork, and end. Return only in the worker, once the pool owns it, and in a
    parked worker once it has its order.
    """
    ask_for_signal_at_parents_end(signal.SIGKILL)
    if os.getppid() != own_pid:
        os._exit(1)
    with socket.socket(fileno=os.dup(control_fd)) as control:
        control.setblocking(True)
        word, fds, _, _ = socket.recv_fds(control, 1, max(_FDS.values()), socket.MSG_CMSG_CLOEXEC)
    if len(fds) != _FDS.get(word):
        os._exit(1)
    if word == PARK:
        try:
            pid = fork()
        except OSError:
            os._exit(0)  # The end of its connection tells the pool that there is none.
        if pid != 0:
            os._exit(0)  # It tells the pool its number itself.
        wait_for_adoption(pool_pid)
        return wait_for_order(fds[0], kept_fds, pool_pid)
    order_fd, report_fd, go_fd = fds
    pid = fork()
    if pid != 0:
        _send(control_fd, pid)
        os._exit(0)
    if os.read(go_fd, 1) != b"g":
        os._exit(1)  # The pool has given us up.
    wait_for_adoption(pool_pid)
    return read_order(order_fd), report_fd, order_fd


def _packages() -> frozenset[str]:
    return frozenset(package_of(name) for name in sys.modules)


def _send(control_fd: int, word: object) -> None:
    line = str(word).encode() + b"\n" if isinstance(word, int) else pack(word)
    while line:
        line = line[os.write(control_fd, line) :]
