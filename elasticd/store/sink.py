"""Keeps a sink's errors from ending the thread that serves all watches, or the watch.

A sink may raise on a record that nobody thought of. The thread goes on, because otherwise the lease
of a node with dead watches would live on. The exception is printed on stderr, as Python does for
any thread's end: this package does not log.
"""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ["has_taken"]

E = TypeVar("E")


def has_taken(sink: Callable[[E], None], event: E) -> bool:
    """Give the event to the sink; return False if that raised, which is printed on stderr."""
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
