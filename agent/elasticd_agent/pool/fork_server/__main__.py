"""`python -u -m elasticd_agent.pool.fork_server --fd N [--listen-fd M]`: the fork server's process.

Start it in a folder without Python files ("/"), and from a thread that lives as long as its owner.
"""

import argparse
import os
import signal
import socket
import sys

from elasticd.channel.fork_server import ServerFailed
from elasticd.channel.wire import pack
from elasticd.errors import EnvironmentProblem
from elasticd_agent.pool.fork_server.fork_check import ServerFacts
from elasticd_agent.pool.fork_server.forked_pool import set_up_pool
from elasticd_agent.pool.fork_server.installation import installation
from elasticd_agent.pool.fork_server.server import ForkServer, InForkedPool
from elasticd_agent.pool.fork_server.surroundings import surroundings
from elasticd_agent.pool.job_pool import run_pool
from elasticd_agent.pool.process import mark
from elasticd_agent.pool.process.inheritance import open_fds, set_soft_limit
from elasticd_agent.pool.process.prctl import adopt_orphans, ask_for_signal_at_parents_end
from elasticd_agent.pool.process.process_table import children_of
from elasticd_agent.pool.warmup import warm_up
from elasticd_agent.pool.worker import as_main
from elasticd_agent.pool.zygote.environ_reads import recorded

_MANY_THREADS = "importing torch starts threads here, or touches a GPU"
_HAS_CHILDREN = "importing torch starts processes here, which nobody could tell from a pool's"


def main() -> None:
    """Run the server; return only in a worker of a forked pool whose script is over."""
    parser = argparse.ArgumentParser(prog="python -m elasticd_agent.pool.fork_server")
    parser.add_argument("--fd", type=int, required=True, help="our end of the owner's socketpair")
    parser.add_argument("--listen-fd", type=int, default=-1, help="where other agents connect")
    parser.add_argument("--open-files", type=int, default=0, help="take this soft limit")
    given = parser.parse_args()
    set_soft_limit(given.open_files)
    ask_for_signal_at_parents_end(signal.SIGKILL)  # It guards nothing, and may be stopped.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not mark.has_room(os.environ):
        mark.exec_again_with_room(has_environment=True)
    mark_room, environment_room = mark.take_room(), mark.take_environment_room()
    adopt_orphans()
    if not sys.flags.safe_path:
        del sys.path[0]
    pythonpath = as_main.python_path(os.environ, os.getcwd())
    server = _server(given.fd, given.listen_fd)
    kept_fds = frozenset(open_fds() - {given.fd, given.listen_fd, 0, 1, 2})
    try:
        server.run()
    except InForkedPool as forked:
        options = set_up_pool(forked, environment_room, kept_fds)
    else:
        os._exit(0)
    run_pool(options, mark_room=mark_room, pythonpath=pythonpath)


def _server(owner_fd: int, listen_fd: int) -> ForkServer:
    """Import torch, and make the server; if no pool could be forked, tell the owner and end."""
    owner = socket.socket(fileno=owner_fd)
    listener = socket.socket(fileno=listen_fd) if listen_fd >= 0 else None
    env, installed = dict(os.environ), installation()
    try:
        with recorded() as reads:
            warmup = warm_up()
    except EnvironmentProblem as exc:
        why = str(exc)
    else:
        why = _unfitness(can_fork=warmup.can_fork)
        if not why:
            facts = ServerFacts(
                surroundings=surroundings(),
                env=env,
                reads=frozenset(reads.names),
                installation=installed,
            )
            for each in (owner, listener):
                if each is not None:
                    each.set_inheritable(False)
            return ForkServer(owner, listener, facts, warmup.import_s)
    owner.send(pack(ServerFailed(why=why)), socket.MSG_NOSIGNAL)
    sys.stderr.flush()
    os._exit(1)


def _unfitness(*, can_fork: bool) -> str:
    """Return why no pool can be forked from this process; empty if pools can."""
    if not can_fork:
        return _MANY_THREADS
    if children_of(os.getpid()):
        return _HAS_CHILDREN
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as exc:
        return f"a kernel before 5.3, or a filter, refuses pidfd_open: {exc}"
    return ""


if __name__ == "__main__":
    main()
