"""`python -u -m elasticd_agent.pool --fd N [--preload a,b --folder DIR]`: the pool's process.

Start it in a folder without Python files ("/"), so that nothing there is taken for a module of the
standard library or of ours, and name the job's folder with --folder. Start it from a thread that
lives as long as the agent: the kernel's signal that a parent died (PR_SET_PDEATHSIG) is sent when
that thread ends.
"""

import argparse
import os
import signal
import sys

from elasticd.records.job import EntryKind
from elasticd_agent.pool.job_pool import PoolOptions, run_pool
from elasticd_agent.pool.process import mark
from elasticd_agent.pool.process.inheritance import set_soft_limit
from elasticd_agent.pool.process.prctl import adopt_orphans, ask_for_signal_at_parents_end
from elasticd_agent.pool.worker import as_main
from elasticd_agent.pool.zygote.learned_set import Script


def main() -> None:
    """Run the pool; return only in a forked worker whose script is over."""
    options = _options()
    # Not SIGKILL: workers' own descendants would stay. By default it ends us during the imports,
    # when there are none yet; afterwards the guardian catches it and cleans up first.
    ask_for_signal_at_parents_end(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not mark.has_room(os.environ):
        mark.exec_again_with_room()
    room = mark.take_room()
    os.set_inheritable(options.agent_fd, False)
    adopt_orphans()
    if not sys.flags.safe_path:
        del sys.path[0]  # Our own folder, which `python -m` put there; workers have another.
    run_pool(options, mark_room=room, pythonpath=as_main.python_path(os.environ, os.getcwd()))


def _options() -> PoolOptions:
    parser = argparse.ArgumentParser(prog="python -m elasticd_agent.pool")
    parser.add_argument("--fd", type=int, required=True, help="our end of the agent's socketpair")
    parser.add_argument("--preload", default="", help="modules to import, separated by commas")
    parser.add_argument("--folder", default=os.getcwd(), help="look for those here first")
    parser.add_argument("--no-torch", action="store_true", help="workers are other programs")
    parser.add_argument("--script", default="", help="what the workers run")
    parser.add_argument("--is-module", action="store_true", help="it is the name of a module")
    parser.add_argument("--learn-in", default="", help="learn what it loads, and keep that here")
    parser.add_argument("--open-files", type=int, default=0, help="take this soft limit")
    given = parser.parse_args()
    set_soft_limit(given.open_files)
    return PoolOptions(
        agent_fd=given.fd,
        preload=tuple(filter(None, given.preload.split(","))),
        folder=given.folder,
        needs_torch=not given.no_torch,
        learn_in=given.learn_in,
        script=Script(
            entry=given.script,
            kind=EntryKind.MODULE if given.is_module else EntryKind.SCRIPT,
            folder=given.folder,
        ),
    )


if __name__ == "__main__":
    main()
