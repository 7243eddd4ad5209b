"""A sentence about a local run that is over and kept no records, as one that was killed.

Its private etcd died with it, so what is known is what its files say: whether it came to its own
end, when somebody last wrote there, and in which generation.
"""

import time
from contextlib import suppress
from pathlib import Path

from elasticd.cli.terminal.words import duration
from elasticd.control.local_run.run_folder import JobFolder

__all__ = ["is_killed_run", "killed_run_sentence"]

_GENERATION = "gen-"


def killed_run_sentence(folder: JobFolder, now_unix_s: float) -> str:
    """Say how and when the run ended, as far as its folder tells, and where its files are."""
    generation = _newest_generation(folder.path)
    if folder.endpoint is not None:  # A run that comes to its own end removes it.
        why = "was killed, or its machine stopped, before it could keep its records"
    elif generation:
        why = "kept no records: it was killed as it ended, or had no room for them"
    else:
        why = "kept no records: it ended, or was killed, before its workers had begun"
    said = f"The run {folder.job!r} {why}"
    at_unix_s = _last_written(folder, generation)
    if at_unix_s:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_unix_s))
        said += f"; it last wrote at {at}, {duration(now_unix_s - at_unix_s)} ago"
        said += f", in generation {generation}" if generation else ""
    changes = folder.path / "incidents.jsonl"
    also = f", its changes of world in {changes}" if changes.exists() else ""
    return f"{said}. Its logs are in {folder.path}{also}."


def is_killed_run(folder: JobFolder) -> bool:
    """Return whether workers of a run that is over may have trained, and nothing tells of it.

    A call that was refused after it had taken its folder leaves a lock there, and no more.
    """
    if folder.records.exists() or folder.is_live():
        return False
    return folder.endpoint is not None or _newest_generation(folder.path) > 0


def _newest_generation(path: Path) -> int:
    """Return the newest generation that has logs; 0: no worker came so far."""
    numbers = (each.name.removeprefix(_GENERATION) for each in path.glob(f"{_GENERATION}*"))
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def _last_written(folder: JobFolder, generation: int) -> float:
    """Return when a worker or an agent wrote last, by the clock of the file system; 0: never."""
    newest = 0.0
    for where in (folder.path / f"{_GENERATION}{generation}", folder.agents):
        for path in where.glob("*"):
            with suppress(OSError):
                newest = max(newest, path.stat().st_mtime)
    return newest
