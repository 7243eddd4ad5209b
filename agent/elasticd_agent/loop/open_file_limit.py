"""How many files and sockets this process may have open: all that the machine allows it.

A proposer of a thousand nodes holds a thousand connections, and without a free descriptor an agent
can neither start a process nor connect to etcd again. Its workers get the limit that it began
with: programs that use `select` break on numbers above 1,023.
"""

import resource
from contextlib import suppress

__all__ = ["first_limit", "give_first_limit", "raise_limit"]

_first_soft: int | None = None
"""The soft limit that this process began with; None: it is still that."""


def raise_limit() -> None:
    """Raise the soft limit to the hard one."""
    global _first_soft
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            _first_soft = soft


def first_limit() -> int | None:
    """Return the soft limit that this process began with; None if it has not changed.

    A child of another user must set the limit itself: the kernel refuses `give_first_limit` there.
    """
    return _first_soft


def give_first_limit(pid: int) -> None:
    """Give a process that was just started the limit that we began with."""
    if _first_soft is not None:
        with suppress(OSError, ValueError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (_first_soft, hard))
