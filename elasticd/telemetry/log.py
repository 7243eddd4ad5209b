"""The log of elasticd: structlog on stderr, for a terminal or as one JSON object per line.

An event is a fixed `noun.verb_past` ("world.committed"); everything variable is a key. The agent
must be up within half a second, so the import must be fast: structlog would import rich (70 ms, 10
MB) only to draw tracebacks, so this module blocks that import while it imports structlog. Modules
that log take `get_logger` from here, not from structlog, so that this module is imported first.
"""

import json
import os
import sys
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, TextIO

_RICH = sys.modules.get("rich")
if _RICH is None:
    sys.modules["rich"] = None  # type: ignore[assignment]  # makes `import rich` fail, fast
try:
    import structlog
finally:
    if _RICH is None:
        del sys.modules["rich"]

from elasticd.telemetry.log_ring import LogRing  # noqa: E402 - after the import without rich
from elasticd.telemetry.log_thread import LogThread  # noqa: E402

__all__ = ["bind", "configure", "get_logger", "open_log", "recent_lines"]

_ring = LogRing(0)
"""The ring of the last configuration."""

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(
    is_json: bool | None = None,
    level: str = "info",
    stream: TextIO | None = None,
    *,
    has_thread: bool = False,
    lines_kept: int = 0,
) -> None:
    """Send the log to stderr; with `is_json` None it is JSON unless stderr is a terminal.

    With `has_thread` no caller waits for stderr, since another thread writes; then lines logged
    just before the process is killed may be missing. `lines_kept` is the number of the newest lines
    that stay in memory for `recent_lines`.
    """
    global _ring
    _ring = ring = LogRing(lines_kept)
    target = stream if stream is not None else sys.stderr
    if target is None:  # It was closed when this process began.
        target = open(os.devnull, "w")  # noqa: SIM115  # As long as the process, like stderr.
    if is_json is None:
        is_json = not target.isatty()
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if is_json:
        processors += [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ]
    else:
        processors.append(
            structlog.dev.ConsoleRenderer(
                colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        )
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=_Lines(target, ring, is_json=is_json, has_thread=has_thread),
        cache_logger_on_first_use=False,
    )


def recent_lines() -> list[str]:
    """Return the newest lines of the log, the oldest of them first; any thread may call this.

    The lines are kept also if stderr does not take them.
    """
    return _ring.lines()


def open_log(path: Path) -> BinaryIO:
    """Open a file for a child process's output; if that fails, return a file that drops the output.

    A full disk must not prevent the start of a process.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError as exc:
        get_logger().warning("log.not_opened", path=str(path), why=str(exc))
        return open(os.devnull, "ab")


class _Lines:
    """Writes whole lines; if a disk is full or a reader has ended, only the lines are lost.

    An error on the thread that owns an agent would end the agent, and all of its workers. The
    number of missing lines is logged as soon as a line can be written again.
    """

    def __init__(self, target: TextIO, ring: LogRing, *, is_json: bool, has_thread: bool) -> None:
        self._target, self._ring, self._is_json = target, ring, is_json
        self._lock = Lock()
        self._lost = 0
        self._thread = LogThread(self._write) if has_thread else None

    def __call__(self, *_args: object) -> "_Lines":
        """Return this object, as the factory of the one logger."""
        return self

    def write(self, line: str) -> None:
        self._ring.add(line)
        if self._thread is not None:
            self._thread.put(line)
        else:
            self._write(line)

    debug = info = warning = error = write

    def _write(self, line: str, lost_before: int = 0) -> None:
        with self._lock:
            self._lost += lost_before
            lost = self._lost
            try:
                self._target.write((self._gap(lost) + line if lost else line) + "\n")
                self._target.flush()
            except (OSError, ValueError):  # ValueError means that it was closed.
                self._lost += 1
            else:
                self._lost -= lost

    def _gap(self, lost: int) -> str:
        event = {"event": "log.lines_lost", "level": "warning", "lines": lost}
        return (json.dumps(event) if self._is_json else f"log.lines_lost lines={lost}") + "\n"


def get_logger(**bound: object) -> Any:
    """Return a logger with these keys bound; a module may get it before `configure`."""
    return structlog.get_logger(**bound)


def bind(**keys: object) -> None:
    """Add these keys to all later log events of this thread."""
    structlog.contextvars.bind_contextvars(**keys)
