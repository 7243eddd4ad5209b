"""The journal of an operator on disk: its observations and decisions, which a developer can replay.

It is written only on request. A full disk ends the journal, and nothing else. Two files of a
limited size are kept; each begins with everything that was observed at that time.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from elasticd.errors import EnvironmentProblem
from elasticd.kube.decide.action import Action
from elasticd.kube.decide.cluster import ObservedCluster, Records
from elasticd.kube.decide.journal import line, opening
from elasticd.telemetry.log import get_logger

__all__ = ["JournalFile"]

LIMIT_BYTES = 64 << 20
"""The size limit of one file, in bytes; the previous file stays beside it as `FILE.1`."""

log = get_logger()


class JournalFile:
    """A journal's file, for one thread. Only its owner may read it: it holds specs of users."""

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        """Begin the file anew.

        Raises: EnvironmentProblem: the file cannot be written there.
        """
        self._path, self._limit_bytes = path, limit_bytes
        self._before: ObservedCluster | None = None
        self._size = 0
        self._is_over = False
        try:
            self._begin("")
        except OSError as exc:
            raise EnvironmentProblem(
                f"--journal {path} cannot be written ({exc.strerror}): name a file in a folder "
                "that is there and can be written to."
            ) from exc

    def note(
        self, seen: ObservedCluster, actions: Sequence[Action], *, now_s: float, now_unix_s: float
    ) -> None:
        """Write one decision that has actions."""
        if self._is_over or not actions:
            return
        try:
            if self._before is None or self._size >= self._limit_bytes:
                self._before = ObservedCluster(identity=seen.identity, records=Records())
                self._begin(opening(seen.identity) + "\n")
            text = line(self._before, seen, actions, now_s=now_s, now_unix_s=now_unix_s) + "\n"
            self._append(text)
        except OSError as exc:
            self._is_over = True
            log.warning("journal.ended", path=str(self._path), why=exc.strerror)
            return
        self._before = seen

    # --- private ------------------------------------------------------------------------------

    def _begin(self, text: str) -> None:
        if self._size:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        opened = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.close(opened)
        self._size = 0
        self._append(text)

    def _append(self, text: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)
        self._size += len(text.encode())
