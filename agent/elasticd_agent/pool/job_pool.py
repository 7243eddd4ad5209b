"""The pool of one job, in a process that has imported torch: its options, its start and its end."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.channel.pool import PoolFailed
from elasticd.channel.wire import pack
from elasticd.errors import EnvironmentProblem
from elasticd_agent.pool.guardian import Guardian
from elasticd_agent.pool.launch import InForkedWorker, Launcher
from elasticd_agent.pool.link import Link
from elasticd_agent.pool.process.inheritance import open_fds
from elasticd_agent.pool.warmup import warm_up
from elasticd_agent.pool.worker import worker
from elasticd_agent.pool.zygote.learned_set import Script
from elasticd_agent.pool.zygote.zygote_supervisor import ZygotePlan

__all__ = ["PoolOptions", "run_pool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """The options that a pool gets at its start."""

    agent_fd: int
    """Our end of the agent's connection."""
    preload: tuple[str, ...]
    """The modules to import beside torch."""
    folder: str
    """Where those are looked for first."""
    script: Script
    needs_torch: bool = True
    learn_in: str = ""
    """Where it is kept what the script imports; empty if that is not learned."""


def run_pool(options: PoolOptions, *, mark_room: int, pythonpath: Sequence[str]) -> None:
    """Run the pool until the agent is gone; return only in a forked worker whose script is over.

    `mark_room` is the memory for a worker's name, `pythonpath` has the folders that PYTHONPATH put
    on the search path.
    """
    try:
        warmup = warm_up(options.preload, options.folder, needs_torch=options.needs_torch)
    except EnvironmentProblem as exc:
        os.write(options.agent_fd, pack(PoolFailed(message=str(exc))))
        sys.stderr.flush()
        os._exit(1)
    kept_fds = open_fds() - {options.agent_fd}
    pool_pid = os.getpid()
    launcher = Launcher(
        can_fork=warmup.can_fork,
        can_park=warmup.can_fork and options.needs_torch,
        pool_pid=pool_pid,
        kept_fds=kept_fds,
    )
    plan = None
    if options.learn_in and warmup.can_fork and options.needs_torch:
        plan = ZygotePlan(
            script=options.script,
            record_folder=options.learn_in,
            pool_pid=pool_pid,
            kept_fds=kept_fds,
            environment=dict(os.environ),
        )
    try:
        Guardian(Link(options.agent_fd), launcher, warmup, plan).run()
    except InForkedWorker as child:
        start, report_fd, inherited = child.start, child.report_fd, child.inherited
    else:
        os._exit(0)
    worker.become(
        start,
        report_fd,
        worker.Inheritance(
            pool_pid=pool_pid,
            inherited=inherited,
            mark_room=mark_room,
            pythonpath=pythonpath,
            is_asked=plan is not None,
        ),
    )
