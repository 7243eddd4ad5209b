"""A job's folder on this node: whose logs stand there now."""

import fcntl
from pathlib import Path

__all__ = ["claim"]

_OWNER = "uid"


def claim(folder: Path, uid: str) -> None:
    """Make the folder this job's; logs that an earlier job of the same name left move aside.

    They go to `earlier-<k>/`, nothing is deleted. Several agents of one machine may share the
    folder: the lock makes the first of them do it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _OWNER).open("a+") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        owner.seek(0)
        if owner.read().strip() == uid:
            return
        _move_aside(folder)
        owner.truncate(0)
        owner.write(f"{uid}\n")


def _move_aside(folder: Path) -> None:
    old = sorted(folder.glob("gen-*"))
    if not old:
        return
    count = 1
    while (folder / f"earlier-{count}").exists():
        count += 1
    aside = folder / f"earlier-{count}"
    aside.mkdir()
    for generation in old:
        generation.rename(aside / generation.name)
