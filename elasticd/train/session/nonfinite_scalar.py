"""Reports once that a number which the script gave to `commit` is not finite, such as a loss that
is NaN.

It runs on the heartbeat's thread and looks at what each heartbeat carries anyway, so a step costs
nothing for it; a number that is not finite for a single quick step may be missed.
"""

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

__all__ = ["FiniteCheck"]

TOLD_LIMIT = 20
"""How many names are reported; a script that makes a new one in each step would fill its log."""


def _print(text: str) -> None:
    with suppress(OSError, ValueError):  # A full disk, or a closed file, is no reason not to beat.
        sys.stderr.write(f"elasticd: {text}\n")
        sys.stderr.flush()


class FiniteCheck:
    """Reports the numbers of one process that are not finite; `say` gets each sentence."""

    def __init__(self, say: Callable[[str], object] = _print) -> None:
        self._say = say
        self._told: set[str] = set()

    def check(self, scalars: Mapping[str, float], step: int) -> None:
        """Check the numbers of the last commit, whose step is `step`; report each name once."""
        for name, value in scalars.items():
            if math.isfinite(value) or name in self._told or len(self._told) >= TOLD_LIMIT:
                continue
            self._told.add(name)
            self._say(
                f"commit({name}={value}) at step {step} is not a finite number; the training goes "
                "on. With --on-nan stop a job ends at the first gradient that is not finite, and "
                "names its parameters; with --on-nan skip such steps are left out."
            )
