"""Whether no worker has written anything for too long. Pure; time is the caller's.

The rule is for restart mode only: there elasticd knows nothing of steps, and a job that printed its
loss and stopped printing probably hangs. This is not certain, so the rule is off unless the user
sets a limit.
"""

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Heard", "OutputSilence", "Silent"]

SKIPPED_TURNS = 3
"""So many times the pause between two looks: we stood still ourselves, and the workers perhaps too
(a suspended machine)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """No worker of a job on this node, `pid` among them, has written anything for too long."""

    pid: int
    since_s: float
    """For how many seconds nothing has been written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The job was reported as silent, and one of its workers has written something since."""

    pid: int


News: TypeAlias = Silent | Heard


class OutputSilence:
    """How long no worker of one job here has written anything; with `limit_s` 0 never reported.

    All workers have one clock, because mostly rank 0 prints for all. A worker that begins or ends
    counts as output, since the other workers of its world are then about to act, too.
    """

    def __init__(self, limit_s: float, pause_s: float) -> None:
        """`pause_s` is the intended time between two looks, in seconds."""
        self._limit_s, self._pause_s = limit_s, pause_s
        self._sizes: dict[int, int] = {}
        self._told: set[int] = set()
        self._changed_s = 0.0
        self._looked_s: float | None = None

    def poll(self, sizes: dict[int, int], now_s: float) -> list[News]:
        """Take in how much each worker that lives has written by now; return what is new."""
        gap_s = now_s - self._looked_s if self._looked_s is not None else 0.0
        self._looked_s = now_s
        if gap_s > SKIPPED_TURNS * self._pause_s:
            self._changed_s = min(now_s, self._changed_s + gap_s)
        self._told &= sizes.keys()
        if sizes != self._sizes:
            self._sizes, self._changed_s = dict(sizes), now_s
            told, self._told = self._told, set()
            return [Heard(pid=pid) for pid in sorted(told)]
        silent_s = now_s - self._changed_s
        if not self._limit_s or silent_s < self._limit_s:
            return []
        new = sizes.keys() - self._told
        self._told |= new
        return [Silent(pid=pid, since_s=silent_s) for pid in sorted(new)]
