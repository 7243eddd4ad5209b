"""`python -u -m elasticd_agent.pool --fd N [--preload a,b --folder DIR]`: the pool's process.

Start it in a folder without Python files ("/"), so that nothing there is taken for a module of the
standard library or of ours, and name the job's folder with --folder. Start it from a thread that
lives as long as the agent: the kernel's word that a parent died goes by thread.
"""

import argparse
import os
import signal
import sys

from elasticd.channel.pool import PoolFailed
from elasticd.channel.wire import pack
from elasticd.errors import EnvironmentProblem
from elasticd.records.job import EntryKind
from elasticd_agent.pool import as_main, mark, worker
from elasticd_agent.pool.guardian import Guardian
from elasticd_agent.pool.inheritance import open_fds
from elasticd_agent.pool.launch import BornChild, Launcher
from elasticd_agent.pool.link import Link
from elasticd_agent.pool.prctl import adopt_orphans, ask_for_signal_at_parents_end
from elasticd_agent.pool.warmup import warm_up
from elasticd_agent.pool.zygote.learned_set import Script
from elasticd_agent.pool.zygote.zygote_keeper import ZygotePlan


def main() -> None:
    """Run the pool; comes back in a forked worker whose script is over, and nowhere else."""
    parser = argparse.ArgumentParser(prog="python -m elasticd_agent.pool")
    parser.add_argument("--fd", type=int, required=True, help="our end of the agent's socketpair")
    parser.add_argument("--preload", default="", help="modules to import, separated by commas")
    parser.add_argument("--folder", default=os.getcwd(), help="look for those here first")
    parser.add_argument("--no-torch", action="store_true", help="workers are other programs")
    parser.add_argument("--script", default="", help="what the workers run")
    parser.add_argument("--is-module", action="store_true", help="it is the name of a module")
    parser.add_argument("--learn-in", default="", help="learn what it loads, and keep that here")
    options = parser.parse_args()
    # Not SIGKILL: workers' own descendants would stay. By default it ends us during the imports,
    # when there are none yet; afterwards the guardian catches it and cleans up first.
    ask_for_signal_at_parents_end(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not mark.has_room(os.environ):
        mark.exec_again_with_room()
    room = mark.take_room()
    os.set_inheritable(options.fd, False)
    adopt_orphans()
    if not sys.flags.safe_path:
        del sys.path[0]  # Our own folder, which `python -m` put there; workers have another.
    pythonpath = as_main.python_path(os.environ, os.getcwd())
    try:
        preload = tuple(filter(None, options.preload.split(",")))
        warmth = warm_up(preload, options.folder, needs_torch=not options.no_torch)
    except EnvironmentProblem as exc:
        os.write(options.fd, pack(PoolFailed(message=str(exc))))
        sys.stderr.flush()
        os._exit(1)
    kept_fds = open_fds() - {options.fd}
    pool_pid = os.getpid()
    launcher = Launcher(can_fork=warmth.can_fork, pool_pid=pool_pid, kept_fds=kept_fds)
    plan = None
    if options.learn_in and warmth.can_fork and not options.no_torch:
        plan = ZygotePlan(
            script=Script(
                entry=options.script,
                kind=EntryKind.MODULE if options.is_module else EntryKind.SCRIPT,
                folder=options.folder,
            ),
            record_folder=options.learn_in,
            pool_pid=pool_pid,
            kept_fds=kept_fds,
            environment=dict(os.environ),
        )
    try:
        Guardian(Link(options.fd), launcher, warmth, plan).run()
    except BornChild as child:
        start, report_fd, heritage = child.start, child.report_fd, child.heritage
    else:
        os._exit(0)
    worker.become(
        start,
        report_fd,
        worker.Inheritance(
            pool_pid=pool_pid,
            heritage=heritage,
            mark_room=room,
            pythonpath=pythonpath,
            is_asked=plan is not None,
        ),
    )


if __name__ == "__main__":
    main()
