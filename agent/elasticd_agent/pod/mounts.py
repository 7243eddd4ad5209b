"""Folders that a container with a read-only root has to be given: said before anything fails.

The run folder is looked at where it is made. Without a folder for temporary files torch and many
libraries raise errors that name something else; without a large /dev/shm a data loader's workers
and NCCL die of a bus error in the middle of a step.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from elasticd.errors import EnvironmentProblem
from elasticd.telemetry.log import get_logger

__all__ = ["SMALL_SHM_BYTES", "check_shared_memory", "check_temporary"]

TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path("/usr/tmp"))  # noqa: S108  # Where Python looks.
SHARED = Path("/dev/shm")  # noqa: S108  # The name that the C library knows.
SMALL_SHM_BYTES = 64 << 20
"""What container runtimes give unless they are told otherwise."""

log = get_logger()


def check_temporary(named: str, usual: Iterable[Path] = TEMPORARY) -> None:
    """See that temporary files can be made; `named` is TMPDIR, empty if it is not set.

    Raises:
        EnvironmentProblem: they cannot; says what to mount.
    """
    if any(is_writable(folder) for folder in [*([Path(named)] if named else []), *usual]):
        return
    raise EnvironmentProblem(
        "No folder for temporary files can be written (/tmp is read-only or missing): mount one at "
        "/tmp, in a pod an emptyDir, or name another in TMPDIR."
    )


def check_shared_memory(folder: Path = SHARED) -> None:
    """Log that jobs may lack shared memory: a script without data workers needs none."""
    if not is_writable(folder):
        log.warning(
            "mount.missing",
            path=str(folder),
            hint="a data loader with workers, and NCCL, need it: mount memory there, in a pod an "
            "emptyDir with `medium: Memory`",
        )
        return
    try:
        found = os.statvfs(folder)
    except OSError:
        return
    size_bytes = found.f_blocks * found.f_frsize
    if size_bytes <= SMALL_SHM_BYTES:
        log.warning(
            "mount.small",
            path=str(folder),
            bytes=size_bytes,
            hint="a data loader with workers, and NCCL, may need more: mount memory there, in a "
            "pod an emptyDir with `medium: Memory`",
        )


def is_writable(folder: Path) -> bool:
    """Return True if a file can be made there.

    Its owner and its mode say nothing of a read-only mount.
    """
    probe = folder / f".elasticd-{os.getpid()}"
    try:
        probe.touch(mode=0o600)
        probe.unlink()
    except OSError:
        return False
    return True
