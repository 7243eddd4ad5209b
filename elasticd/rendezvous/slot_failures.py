"""Processes of one slot that fail one after the other: a bad card, a folder that is not there.

The others must not pay for it. The next process of that slot waits longer each time, and what it
costs is charged as the loss of a machine, not as an error of the script. A slot whose process
trained for a while begins with a clean record; what the others do meanwhile is no merit of its own.
One that took too many worlds with it is given up, until its agent is started anew or undrained.
"""

from dataclasses import dataclass

from elasticd.records.failure import SLOT_LIMIT

__all__ = ["Mishap", "STEADY_STEPS", "following"]

STEADY_STEPS = 20
"""Steps that a process must have made to clear the record of those before it."""

PAUSE_S = 1.0
_PAUSE_MOST_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """The record of a slot whose last process failed."""

    count: int
    """Processes that failed in a row."""
    retry_at_s: float | None = None
    """Not before then another; None: whenever there is reason to."""
    is_given_up: bool = False
    """No other process is started here."""


def following(before: Mishap | None, *, steps: int | None, now_s: float) -> Mishap:
    """Return the record after one more; `steps` that it made, None: it never called `run`.

    The first of those that trained is replaced at once: what happens once may happen to anybody.
    Those that never came to train cost nobody else anything: they are tried for ever.
    """
    is_clean = before is None or (steps is not None and steps >= STEADY_STEPS)
    count = 1 if is_clean or before is None else before.count + 1
    grace = 1 if steps is None else 2
    pause_s = 0.0 if count < grace else PAUSE_S * 2.0 ** min(count - grace, 16)
    pause_s = min(_PAUSE_MOST_S, pause_s)
    if steps is not None and count >= SLOT_LIMIT:
        return Mishap(count=count, is_given_up=True)
    return Mishap(count=count, retry_at_s=now_s + pause_s if pause_s else None)
