"""Hides this process's memory and environment from other processes of the same user."""

import ctypes

__all__ = ["hide_from_user"]

PR_SET_DUMPABLE = 4


def hide_from_user() -> None:
    """Forbid other processes of this user to read this process's memory and environment.

    Children are not affected. An agent's workers are the user's code and run as the same user.
    Without this call they could read the password of etcd in `/proc/<agent>/environ`, or attach to
    the agent as debuggers do; a `status` or `run` on the same machine has the same risk. The call
    also disables core dumps. Root can still read everything.
    """
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
