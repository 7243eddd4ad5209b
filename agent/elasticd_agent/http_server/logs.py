"""This node's worker logs, for whoever follows a job from elsewhere, and how far its ranks are.

`/v1/logs/<job>/<generation>/<rank>/<out|err|times>?offset=N` answers with bytes from there on, at
most 1 MiB, and the file's size in `X-Elasticd-Size`; `/v1/progress/<job>` with where the ranks of
this node stand, as JSON. It serves nothing else: no listing, no other file. A name is checked and a
number is a number before a path is made of them.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs

from elasticd.errors import CallError
from elasticd.records.ids import JobName, checked_name
from elasticd_agent.http_server.answer import HttpAnswer, text_answer

__all__ = ["ANSWER_LIMIT_BYTES", "LogFiles", "Progress", "ProgressAnswers"]

ANSWER_LIMIT_BYTES = 1 << 20
_LOGS, _PROGRESS = "/v1/logs/", "/v1/progress/"
_NUMBER = re.compile(r"[0-9]{1,15}")

Progress = Callable[[JobName], bytes | None]
"""Answers where a job's ranks on this node stand; None if it has none, or nobody answers in
time."""


class LogFiles:
    """The route to the logs.

    `folders` holds the run folders of jobs that asked for another one than `run_folder`; it may
    grow meanwhile.
    """

    def __init__(self, run_folder: Path, folders: Mapping[JobName, Path] | None = None) -> None:
        self._run_folder = run_folder
        self._folders = {} if folders is None else folders

    def __call__(self, path: str, query: str) -> HttpAnswer | None:
        if not path.startswith(_LOGS):
            return None
        try:
            file_path, offset = self._log_of(path, query)
            with _opened(file_path) as file:
                size = file.seek(0, 2)
                file.seek(min(offset, size))
                body = file.read(ANSWER_LIMIT_BYTES)
        except (CallError, OSError):
            return text_answer(HTTPStatus.NOT_FOUND, "There is no such log.")
        return HttpAnswer(body=body, headers={"X-Elasticd-Size": str(size)})

    def _log_of(self, path: str, query: str) -> tuple[Path, int]:
        """Find the file that a request names, and the offset from which it is wanted.

        Raises: CallError: it names no file that could be a log of elasticd.
        """
        match path.split("/"):
            case ["", "v1", "logs", job, generation, rank, ("out" | "err" | "times") as stream]:
                name = JobName(checked_name("job", job))
                numbers = [generation, rank, *parse_qs(query).get("offset", ["0"])[:1]]
                if all(_NUMBER.fullmatch(number) for number in numbers):
                    run_folder = self._folders.get(name, self._run_folder)
                    folder = run_folder / name / f"gen-{int(generation)}"
                    found = (folder / f"rank-{int(rank)}.{stream}").resolve()
                    # A worker may have put a link there: its log server leads out of the folder.
                    if found.is_relative_to(run_folder.resolve()):
                        return found, int(numbers[2])
        raise CallError(f"{path} is not the path of a log.")


def _opened(path: Path) -> BinaryIO:
    """Open a regular file only: opening a pipe that a worker put there could block for ever.

    Raises: OSError: the file cannot be opened. CallError: it is no regular file.
    """
    line = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(line).st_mode):
        os.close(line)
        raise CallError(f"{path} is no file.")
    return os.fdopen(line, "rb")


class ProgressAnswers:
    """The route to the progress of the ranks here."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __call__(self, path: str, query: str) -> HttpAnswer | None:
        if not path.startswith(_PROGRESS):
            return None
        found = self._progress(JobName(path.removeprefix(_PROGRESS)))
        if found is None:
            return text_answer(HTTPStatus.NOT_FOUND, "There is no such job here.")
        return HttpAnswer(body=found)
