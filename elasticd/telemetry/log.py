"""elasticd's own log: structlog on stderr, for a terminal or as one JSON object a line.

An event is a fixed `noun.verb_past` ("world.committed"); everything variable is a key. The agent
must be up within half a second, so the import is kept cheap: structlog would import rich (70 ms,
10 MB) only to draw tracebacks with it, which is switched off while it is imported here. Whoever
logs takes `get_logger` from this module, not from structlog, so that this one is imported first.
"""

import sys
from typing import Any, TextIO

_RICH = sys.modules.get("rich")
if _RICH is None:
    sys.modules["rich"] = None  # type: ignore[assignment]  # makes `import rich` fail, fast
try:
    import structlog
finally:
    if _RICH is None:
        del sys.modules["rich"]

__all__ = ["bind", "configure", "get_logger"]

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(
    is_json: bool | None = None, level: str = "info", stream: TextIO | None = None
) -> None:
    """Send the log to stderr; None: as JSON unless stderr is a terminal."""
    target = stream if stream is not None else sys.stderr
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
        logger_factory=structlog.PrintLoggerFactory(file=target),
        cache_logger_on_first_use=False,
    )


def get_logger(**bound: object) -> Any:
    """Give a logger with these keys bound; lazy, so it may be taken before `configure`."""
    return structlog.get_logger(**bound)


def bind(**keys: object) -> None:
    """Add these keys to everything that is logged on this thread from now on."""
    structlog.contextvars.bind_contextvars(**keys)
