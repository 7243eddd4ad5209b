"""Makes folders that only their owner can read, for sockets and for data that need room now.

A unix socket's whole path may have 107 bytes, which a run folder easily exceeds, so these folders
are where temporary files are.
"""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

__all__ = ["PREFIX", "free_bytes", "private_folder"]

PREFIX = "elasticd-"
_LONGEST = 80
"""The longest path of the folder, so that names in it have some room too."""
_PLACES = ("/dev/shm", "/tmp", "/var/tmp")  # noqa: S108  # What is made in them is 0700.


def private_folder(least_free_bytes: int = 0, places: Iterable[str] = ()) -> Path | None:
    """Create a new folder with mode 0700 and a short path, where there is so much room.

    `places` are tried in turn; by default that for temporary files, memory, `/tmp`. None: nowhere.
    """
    for place in places or (tempfile.gettempdir(), *_PLACES):
        if free_bytes(Path(place)) < least_free_bytes:
            continue
        try:
            made = tempfile.mkdtemp(prefix=PREFIX, dir=place)
        except OSError:
            continue
        if len(os.fsencode(made)) <= _LONGEST:
            return Path(made)
        os.rmdir(made)
    return None


def free_bytes(folder: Path) -> int:
    """Give the room that an ordinary user has on the disk of this folder; 0 if it is not there."""
    try:
        known = os.statvfs(folder)
    except OSError:
        return 0
    return known.f_bavail * known.f_frsize
