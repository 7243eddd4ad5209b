"""Turns a forked copy of the fork server into the pool of one job."""

import os
import signal
import time

from elasticd.records.job import EntryKind
from elasticd.telemetry.process_title import set_title
from elasticd_agent.pool.fork_server.server import InForkedPool
from elasticd_agent.pool.job_pool import PoolOptions
from elasticd_agent.pool.process.inheritance import open_fds, restore_signals
from elasticd_agent.pool.process.mark import write_environment
from elasticd_agent.pool.process.prctl import adopt_orphans
from elasticd_agent.pool.zygote.learned_set import Script

__all__ = ["set_up_pool"]


def set_up_pool(
    forked: InForkedPool, room: tuple[int, int], kept_fds: frozenset[int]
) -> PoolOptions:
    """Leave the server's session, descriptors, signals and environment; return the pool's options.

    Expects all signals blocked. `room` is the memory in which /proc shows the environment,
    `kept_fds` are descriptors that imported modules opened. The pool asks for no signal at its
    parent's end: the parent is the server, whose end is no reason to end, and the agent's end
    closes the pool's connection. The process ends here if the agent gave this pool up before the
    pool could know.
    """
    order = forked.order
    os.setsid()
    adopt_orphans()  # A fork does not inherit it.
    null_fd = os.open(os.devnull, os.O_RDONLY)
    for fd, number in ((null_fd, 0), (forked.log_fd, 1), (forked.log_fd, 2)):
        os.dup2(fd, number)
    for fd in open_fds() - kept_fds - {0, 1, 2, forked.agent_fd, forked.release_fd}:
        os.close(fd)
    restore_signals()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not os.read(forked.release_fd, 1):
        os._exit(0)
    os.close(forked.release_fd)
    os.environ.clear()
    os.environ.update(order.env)
    time.tzset()
    write_environment(room, order.env)
    set_title(f"elasticd: pool of {order.job}", "pool")
    script = Script(
        entry=order.script,
        kind=EntryKind.MODULE if order.is_module else EntryKind.SCRIPT,
        folder=order.folder,
    )
    return PoolOptions(
        agent_fd=forked.agent_fd,
        preload=(),
        folder=order.folder,
        learn_in=order.learn_in,
        script=script,
    )
