"""A sink's mistakes end neither the thread that serves all watches nor the watch.

Whoever watches may raise on a record that nobody thought of. The thread goes on, since the lease of
a node whose watches are dead would live on without it. What was raised is told as Python tells of
any thread's end, on stderr: this package does not log.
"""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ["has_taken"]

E = TypeVar("E")


def has_taken(sink: Callable[[E], None], event: E) -> bool:
    """Give the event to the sink; False if that raised, which is told on stderr."""
    try:
        sink(event)
    except Exception:
        with suppress(Exception):  # stderr may be gone, which is no reason to end either.
            kind, value, traceback = sys.exc_info()
            assert kind is not None
            thread = threading.current_thread()
            threading.excepthook(threading.ExceptHookArgs((kind, value, traceback, thread)))
        return False
    return True
