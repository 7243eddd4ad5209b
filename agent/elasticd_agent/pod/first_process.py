"""Process 1 of a container ends at SIGTERM.

What the kernel does for any other process it does not do for process 1: a signal without a handler
is ignored, and a deleted pod would take its whole grace. So a handler has to be there from the
first moment on, not only when there is something to close in order.
"""

import os
import signal
from types import FrameType
from typing import NoReturn

__all__ = ["end_on_signals"]


def end_on_signals() -> None:
    """As process 1, end at SIGTERM and SIGINT from now on, as any other process does."""
    if os.getpid() == 1:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
