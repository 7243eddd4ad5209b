"""Hides this process's memory and environment from other processes of the same user."""

import ctypes

__all__ = ["hide_from_user"]

PR_SET_DUMPABLE = 4


def hide_from_user() -> None:
    """Forbid other processes of this user to read our memory and environment; children are not
    affected.

    An agent's workers are the user's code and run as the same user: without this they could read
    the password of etcd in `/proc/<agent>/environ`, or attach to the agent as debuggers do, and the
    same with a `status` or `run` beside them. There are no core dumps then either; root still sees
    all.
    """
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
