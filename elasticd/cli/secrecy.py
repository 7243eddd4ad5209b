"""Reads secrets from files, and hides this process from other processes of the same user."""

import ctypes
from pathlib import Path

__all__ = ["hide_from_user", "secret_in"]

PR_SET_DUMPABLE = 4
SECRET_LIMIT_BYTES = 64 << 10
"""A device may have no end."""


def hide_from_user() -> None:
    """Forbid other processes of this user to read this process's memory and environment.

    Children are not affected. An agent's workers are the user's code and run as the same user.
    Without this call they could read the password of etcd in `/proc/<agent>/environ`, or attach to
    the agent as debuggers do; a `status` or `run` on the same machine has the same risk. The call
    also disables core dumps. Root can still read everything.
    """
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def secret_in(path: str) -> str:
    """Return the text of a file that holds a secret; the path may be a pipe or a device.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is no text in UTF-8 or too large; the message says which.
    """
    with Path(path).open("rb") as file:
        content = file.read(SECRET_LIMIT_BYTES + 1)
    if len(content) > SECRET_LIMIT_BYTES:
        raise ValueError(f"has more than {SECRET_LIMIT_BYTES >> 10} KiB")
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        raise ValueError("is not text in UTF-8") from exc
