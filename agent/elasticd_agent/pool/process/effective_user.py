"""Another user for this process, and for good for what it starts.

The process keeps the user who started it as its real and its saved user: so none of the other
user's processes may end it, trace it or read its memory. All else that it does counts as done by
the other user, above all its access to files: where a name leads elsewhere (a link that a job
made), the kernel refuses what that user may not do. Every process that it starts must have only
that user: otherwise the child could get root's rights back. Each start of a process takes
`child_uid` and `child_gid` for this.

Rejected: to stay root and to drop it in each child alone. The agent writes and reads in folders
that jobs may fill with links, names them by the specs of jobs, and starts keepers with the
variables of jobs: each of these would be a way to root.
"""

import ctypes
import os
from collections.abc import Sequence

__all__ = ["become_effective", "child_gid", "child_uid"]

_CAPABILITY_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3 of linux/capability.h
_libc = ctypes.CDLL(None, use_errno=True)


def become_effective(uid: int, gid: int, groups: Sequence[int]) -> None:
    """Act as this user from now on, without any capability; call it before there are threads.

    The call makes the kernel forget which signal this process wanted at its parent's end.

    Raises: OSError: this process may not, because it lacks CAP_SETUID or CAP_SETGID.
    """
    os.setgroups(groups)
    os.setresgid(-1, gid, -1)
    os.setresuid(-1, uid, -1)
    # A user other than root keeps them over all of that, and hands ambient ones down at each exec.
    _drop_capabilities()


def child_uid() -> int | None:
    """Return the only user of the processes that this one starts; None: its own user."""
    return os.geteuid() if os.getuid() != os.geteuid() else None


def child_gid() -> int | None:
    """Return the only group of the processes that this one starts; None: its own group."""
    return os.getegid() if os.getuid() != os.geteuid() else None


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    if _libc.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
