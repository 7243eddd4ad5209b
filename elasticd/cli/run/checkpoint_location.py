"""Refuses another job's checkpoints, and folders that cannot be written, before a job begins.

The keepers refuse them in any case, but only after the start of the workers.
"""

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread

from elasticd.checkpoint.commit.committer import refusal_of_owner
from elasticd.checkpoint.commit.log import first_owner
from elasticd.checkpoint.storage.location import open_unprobed
from elasticd.errors import CallError
from elasticd.records.checkpoint import CheckpointSpec

__all__ = ["check_location"]

LIMIT_S = 3.0
"""The time for a storage's answer, including a driver's import; after it the keepers will check."""
_FOR_GOOD = frozenset(
    (
        errno.EACCES,
        errno.EEXIST,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    )
)
"""The errors that do not pass by themselves: a full disk, or a server that is away, may."""


def check_location(
    spec: CheckpointSpec | None, environ: Mapping[str, str], *, is_node: bool = True
) -> None:
    """Refuse a URL that holds another job's checkpoints, or a folder that cannot be written; a
    storage that does not answer passes.

    `is_node` is true if workers run on this machine, too. If it is false, a folder of this machine
    may not be the workers' folder, so it is not checked.

    Raises: CallError: the URL holds another job's checkpoints, or cannot be written.
    """
    if spec is None or (not is_node and spec.url.startswith("file://")):
        return
    owners: list[str] = []
    whys: list[str] = []

    def look() -> None:
        if spec.url.startswith("file://"):
            whys.append(_why_not_written(Path(spec.url.removeprefix("file://"))))
        with suppress(Exception):  # The keepers report any error again.
            owners.append(first_owner(open_unprobed(spec.url, spec.options, environ)))

    # The thread is abandoned if it hangs: a driver may search a whole network for credentials.
    thread = Thread(target=look, name="location", daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    if any(whys):
        raise CallError(
            f"The folder of {spec.url} cannot be written ({whys[0]}): choose another --checkpoint."
        )
    if owners and owners[0] not in ("", spec.owner):
        raise CallError(refusal_of_owner(spec.url, owners[0], spec.owner))


def _why_not_written(folder: Path) -> str:
    """Make the folder; return why this user can write nothing into it, if that is for good."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        return os.strerror(exc.errno) if exc.errno in _FOR_GOOD else ""
    return "" if os.access(folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
