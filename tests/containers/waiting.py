"""Waiting for what a process started here is to bring about."""

import subprocess
import time
from collections.abc import Callable

from tests.fixtures.patience import patience_s

__all__ = ["until"]

_PERIOD_S = 0.2


def until(
    what: Callable[[], object],
    limit_s: float,
    process: "subprocess.Popen[str] | None" = None,
    *,
    seen: Callable[[], object] = str,
) -> None:
    """Ask until the answer is true; if the process ends before, say what it has printed.

    If the answer is never true, say what `seen` returns.
    """
    deadline_s = time.monotonic() + patience_s(limit_s)
    while not what():
        if process is not None and process.poll() is not None:
            assert process.stdout is not None
            raise AssertionError(f"{process.args!r} has ended: {process.stdout.read()[-3000:]}")
        assert time.monotonic() < deadline_s, f"nothing came of it in {limit_s:g} s. {seen()}"
        time.sleep(_PERIOD_S)
