"""A job's folder on this node, and which job's logs stand there now."""

import fcntl
from pathlib import Path

from elasticd.control.local_run.run_folder import OF_WORKERS, make_private, move_aside

__all__ = ["claim"]

_OWNER = "uid"


def claim(folder: Path, uid: str) -> None:
    """Make the folder this job's, and move logs aside that an earlier job of the same name left.

    The old logs go to `earlier-<k>/`; none is deleted. Several agents of one machine may share the
    folder: a lock lets only the first of them do it.
    """
    make_private(folder)
    with (folder / _OWNER).open("a+") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        owner.seek(0)
        if owner.read().strip() == uid:
            return
        move_aside(folder, OF_WORKERS)
        owner.truncate(0)
        owner.write(f"{uid}\n")
