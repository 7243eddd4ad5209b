"""The report of an exception that left the script."""

import json
import os
import sys
import sysconfig
import time
import traceback
from types import TracebackType

from elasticd.channel.pool import Raised
from elasticd.records.failure import TRACEBACK_LIMIT_BYTES

__all__ = ["describe", "exit_code", "write_error_file"]

_EXCEPTION_LIMIT = 500
_NOT_THE_USERS = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def describe(worker: str, exc: BaseException) -> Raised:
    """Return an exception as a report; elasticd's own frames must be cut off already."""
    # For some of our own exceptions the sentence says it all: no line of the script is to blame.
    is_plain = getattr(exc, "is_plain", False) is True
    return Raised(
        worker=worker,
        exception=_title(exc)[:_EXCEPTION_LIMIT],
        where="" if is_plain else _where(exc),
        traceback="" if is_plain else _tail("".join(traceback.format_exception(exc))),
        has_group=_has_group(),
        code=exit_code(exc),
        ends_job=getattr(exc, "ends_job", False) is True,
        has_lost_state=getattr(exc, "has_lost_state", False) is True,
    )


def exit_code(exc: BaseException) -> int:
    """Return the code with which the interpreter exits when this exception leaves the script."""
    if isinstance(exc, SystemExit) and isinstance(exc.code, int):
        return exc.code & 0xFF
    return 1


def write_error_file(path: str, exc: BaseException) -> None:
    """Write the error file in the form of torch's `@record`, unless the decorator wrote it already.

    Like the decorator, it writes nothing about an exit that the script called for.
    """
    if isinstance(exc, SystemExit):
        return
    text = {
        "message": {
            "message": _title(exc),
            "extraInfo": {
                "py_callstack": "".join(traceback.format_exception(exc)),
                "timestamp": str(int(time.time())),
            },
        }
    }
    if path and not os.path.exists(path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            json.dump(text, file)


def _title(exc: BaseException) -> str:
    try:
        text = str(exc)
    except Exception:  # The user's own __str__; the failure itself must be told.
        text = "(its text cannot be made)"
    return f"{type(exc).__name__}: {text}"


def _where(exc: BaseException) -> str:
    """Return the innermost line that is neither a library's nor Python's own, if there is one."""
    if isinstance(exc, SyntaxError) and exc.filename:
        return f"{exc.filename}:{exc.lineno}"
    innermost = users = ""
    frame: TracebackType | None = exc.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        innermost = f"{file}:{frame.tb_lineno}"
        if not file.startswith(("<", *_NOT_THE_USERS)):
            users = innermost
        frame = frame.tb_next
    return users or innermost


def _tail(text: str) -> str:
    """Keep the last lines: the newest frames and the error itself stand at the end."""
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) <= TRACEBACK_LIMIT_BYTES:
        return text
    tail = encoded[-TRACEBACK_LIMIT_BYTES:]
    _, newline, whole = tail.partition(b"\n")
    return (whole if newline and whole else tail).decode(errors="ignore")


def _has_group() -> bool:
    distributed = sys.modules.get("torch.distributed")
    is_initialized = getattr(distributed, "is_initialized", None)
    return bool(is_initialized is not None and is_initialized())
