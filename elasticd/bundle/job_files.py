"""The files of a job on one node that a bundle may contain: their list, and their ends.

Only names of a closed list of forms may be read, made of words and numbers alone; for a caller no
other file of the folder exists, and no link that leads elsewhere.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elasticd.bundle.mask import OVERLAP_BYTES, Mask
from elasticd.errors import NotFound
from elasticd.records.job import JobSpec

__all__ = [
    "FILES_LIMIT",
    "GENERATIONS",
    "JobFile",
    "JobFiles",
    "LOG_BYTES",
    "end_of",
    "generation_of",
    "is_folder_of",
]

GENERATIONS = 3
"""The number of the newest generations whose workers' output is listed."""
LOG_BYTES = 256 << 10
RECORD_BYTES = 1 << 20
FILES_LIMIT = 20_000
"""The largest number of files in one list; a node with more than a thousand ranks has more
files."""
PREPARED_LIMIT = 16
"""The largest number of files of processes that had no rank yet; the newest are listed."""

_ANY = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
_OUTPUT = re.compile(r"gen-([0-9]{1,9})/rank-([0-9]{1,9})\.(out|err|error\.json)")
_OTHERS = {
    "prepared": re.compile(rf"prepared/{_ANY}\.(?:out|err|error\.json)"),
    "incidents": re.compile(rf"incidents/gen-[0-9]{{1,9}}\.{_ANY}\.stacks\.txt"),
    "agents": re.compile(rf"agents/{_ANY}\.(?:log|prom)"),
    "": re.compile(r"incidents\.jsonl"),
}
_HOLE = re.compile(rb"\0{64,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    name: str
    """The path below the job's folder, as in "gen-3/rank-0.out"."""
    size: int
    """The size of the file in bytes; a bundle may contain only its end."""


class JobFiles:
    """The files of one job on this node; `folder` is the job's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list(self) -> list[JobFile]:
        """Return the files, the newest output first; an empty list if there is no folder."""
        found = [*self._outputs(), *self._beside()]
        return found[:FILES_LIMIT]

    def end(self, name: str, mask: Mask, limit_bytes: int = 0) -> bytes:
        """Return the end of a file without secrets, from the begin of a line; all if the limit is
        0.

        Raises: NotFound: the name is none of these files, or the file is gone. OSError: the file
        cannot be read.
        """
        if not _is_known(name):
            raise NotFound(f"{name} is no file of a bundle.")
        most = (
            LOG_BYTES if _OUTPUT.fullmatch(name) or name.startswith("prepared/") else RECORD_BYTES
        )
        return end_of(self._folder, name, mask, min(most, limit_bytes) if limit_bytes > 0 else most)

    def _outputs(self) -> Iterator[JobFile]:
        generations = sorted(
            (
                int(name[4:])
                for name in _names(self._folder)
                if re.fullmatch(r"gen-[0-9]{1,9}", name)
            ),
            reverse=True,
        )
        for generation in generations[:GENERATIONS]:
            names = [
                f"gen-{generation}/{name}" for name in _names(self._folder / f"gen-{generation}")
            ]
            known = [(match, name) for name in names if (match := _OUTPUT.fullmatch(name))]
            for _, name in sorted(known, key=lambda one: (int(one[0][2]), one[1])):
                yield from self._one(name)

    def _beside(self) -> Iterator[JobFile]:
        for place, form in _OTHERS.items():
            prefix = f"{place}/" if place else ""
            names = [f"{prefix}{name}" for name in _names(self._folder / place)]
            known = [name for name in names if form.fullmatch(name)]
            if place == "prepared":
                known = sorted(known, key=self._changed_s, reverse=True)[:PREPARED_LIMIT]
            for name in sorted(known):
                yield from self._one(name)

    def _one(self, name: str) -> Iterator[JobFile]:
        with suppress(OSError):
            seen = (self._folder / name).lstat()
            if stat.S_ISREG(seen.st_mode):
                yield JobFile(name=name, size=seen.st_size)

    def _changed_s(self, name: str) -> float:
        with suppress(OSError):
            return (self._folder / name).lstat().st_mtime
        return 0.0


def is_folder_of(folder: Path, spec: JobSpec, *, is_cluster: bool) -> bool:
    """Return whether the folder belongs to this job, and not to another job of the same name."""
    with suppress(OSError, ValueError):
        return (folder / "uid").read_text().strip() == spec.uid
    return folder.is_dir() and not is_cluster


def generation_of(name: str) -> tuple[int, int] | None:
    """Return the generation and rank of a worker's output; None for another name."""
    found = _OUTPUT.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def end_of(folder: Path, name: str, mask: Mask, limit_bytes: int) -> bytes:
    """Return the last bytes of a file below a folder, without secrets, from the begin of a line.

    Raises:
        NotFound: the name is no file, or leads out of the folder.
        OSError: the file cannot be read.
    """
    # The check comes after the open: a worker may put a link or a pipe there at any moment.
    try:
        line = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as exc:
        raise NotFound(f"There is no {name}.") from exc
    try:
        seen = os.fstat(line)
        real = Path(os.readlink(f"/proc/self/fd/{line}"))
        if not stat.S_ISREG(seen.st_mode) or not real.is_relative_to(folder.resolve()):
            raise NotFound(f"There is no file {name} in the job's folder.")
        begin = max(0, seen.st_size - limit_bytes - OVERLAP_BYTES)
        data = _read(line, begin, limit_bytes + OVERLAP_BYTES)
    finally:
        os.close(line)
    data = _HOLE.sub(b"\n[elasticd] bytes of output were dropped here: --log-max\n", data)
    return last_part(mask.data(data), limit_bytes, is_whole=begin == 0)


def last_part(data: bytes, limit_bytes: int, *, is_whole: bool) -> bytes:
    """Return the last bytes, from the begin of a line if there is one; all of a shorter text."""
    if len(data) <= limit_bytes and is_whole:
        return data
    data = data[-limit_bytes:]
    at = data.find(b"\n")
    return data[at + 1 :] if 0 <= at < len(data) - 1 else data


def _is_known(name: str) -> bool:
    forms: Sequence[re.Pattern[str]] = (_OUTPUT, *_OTHERS.values())
    return any(form.fullmatch(name) for form in forms)


def _names(folder: Path) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)
    return []


def _read(line: int, begin: int, count: int) -> bytes:
    parts, at = [], begin
    while count > 0 and (data := os.pread(line, min(count, 1 << 20), at)):
        parts.append(data)
        at, count = at + len(data), count - len(data)
    return b"".join(parts)
