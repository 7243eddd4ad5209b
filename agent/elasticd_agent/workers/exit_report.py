"""How a worker ended, in words that a person can use.

Pure but for reading the worker's own files: what the pool reported comes first, then what `@record`
wrote, then the traceback at the end of its log.
"""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from elasticd.channel.pool import Raised
from elasticd.records.failure import TEXT_WORDS, TRACEBACK_LIMIT_BYTES

__all__ = ["ExitReport", "is_echo", "not_started", "exit_report_of"]

_TAIL_BYTES = 64 * 1024
_RECORD_LIMIT_BYTES = 1 << 20
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python3|<frozen|<string>")

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitReport:
    """How a worker ended, as far as known: by its own report, its error file, or its output."""

    exception: str = ""
    where: str = ""
    traceback: str = ""
    has_group: bool | None = None
    ends_job: bool = False
    has_lost_state: bool = False


def exit_report_of(raised: Raised | None, error_file: Path, err_path: Path) -> ExitReport:
    """Return the best account of a failure that there is; nothing in it can control a terminal."""
    report = _best(raised, error_file, err_path)
    return replace(
        report,
        exception=_plain(report.exception),
        where=_plain(report.where),
        traceback=_plain(report.traceback),
    )


def _best(raised: Raised | None, error_file: Path, err_path: Path) -> ExitReport:
    if raised is not None and not _is_exit(raised.exception):
        return ExitReport(
            exception=raised.exception,
            where=raised.where,
            traceback=raised.traceback,
            has_group=raised.has_group,
            ends_job=raised.ends_job,
            has_lost_state=raised.has_lost_state,
        )
    report = _recorded(error_file) or _logged(err_path)
    if raised is None or report.exception:
        return report
    # It called for its exit; why, it may have printed.
    return replace(
        report, exception=raised.exception, where=raised.where, has_group=raised.has_group
    )


def not_started(entry: str, why: str) -> ExitReport:
    """Return the failure of a worker that could not be started."""
    return ExitReport(exception=why, where=f"start of {entry}", traceback=why, has_group=False)


def is_echo(report: ExitReport) -> bool:
    """Return whether this end looks like the consequence of another rank's death."""
    has_words = report.exception and not _is_exit(report.exception)
    said = f"{report.exception}\n{_message(report.traceback)}" if has_words else report.traceback
    return TEXT_WORDS.search(said) is not None


def _plain(text: str) -> str:
    """Remove colours and other control sequences from a script's text, because others read it on a
    terminal.
    """
    return _CONTROL.sub("?", _ESCAPE.sub("", text).replace("\r", "\n"))


def _message(traceback: str) -> str:
    """Return what follows the last frame and its source line: the whole text of the exception.

    The text that is kept elsewhere is cut after 500 characters, and some libraries begin with more.
    """
    ends = [match.end() for match in _FRAME.finditer(traceback)]
    lines = traceback[ends[-1] if ends else 0 :].splitlines()
    return "\n".join(line for line in lines if not line.startswith("    "))


def _is_exit(exception: str) -> bool:
    return exception.startswith(f"{SystemExit.__name__}:")


def _logged(err_path: Path) -> ExitReport:
    """Return the traceback at the end of the log, or the log's last lines."""
    tail = _tail(err_path)
    begin = tail.rfind("Traceback (most recent call last):")
    if begin >= 0:
        return _from_traceback(tail[begin:])
    return ExitReport(traceback="\n".join(tail.splitlines()[-10:])[-TRACEBACK_LIMIT_BYTES:])


def _recorded(path: Path) -> ExitReport | None:
    """Read the error file that torch's `@record` writes."""
    try:
        with path.open("rb") as file:
            message = json.loads(file.read(_RECORD_LIMIT_BYTES))["message"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if isinstance(message, str):
        return ExitReport(exception=message[:500])
    try:
        report = _from_traceback(str(message["extraInfo"]["py_callstack"]))
        exception = str(message["message"]).strip()[:500] or report.exception
    except (KeyError, TypeError):
        return None
    return ExitReport(exception=exception, where=report.where, traceback=report.traceback)


def _from_traceback(text: str) -> ExitReport:
    text = text.strip()
    lines = text.splitlines()
    frames = [(m["file"], m["line"]) for m in _FRAME.finditer(text)]
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])] or frames
    last = next((line for line in reversed(lines) if line and not line.startswith(" ")), "")
    return ExitReport(
        exception=last[:500],
        where=":".join(own[-1]) if own else "",
        traceback=text[-TRACEBACK_LIMIT_BYTES:],
    )


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
