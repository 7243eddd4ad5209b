"""The crash loop of one slot: its processes fail one after the other, as with a bad card.

The other slots must not pay for it. The next process of that slot waits longer each time, and its
cost is charged as the loss of a machine, not as an error of the script. A slot whose process
trained for a while begins with a clean record; steps that the other slots make meanwhile do not
count for it. A slot that took too many worlds with it is left out, until its agent is started anew
or undrained.
"""

from dataclasses import dataclass

from elasticd.records.failure import SLOT_LIMIT

__all__ = ["SlotFailure", "STEADY_STEPS", "following"]

STEADY_STEPS = 20
"""How many steps a process must have made to clear the record of those before it."""

PAUSE_S = 1.0
_PAUSE_MOST_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFailure:
    """The record of a slot whose last process failed."""

    count: int
    """How many processes failed in a row."""
    retry_at_s: float | None = None
    """Another one is not started before then; None for whenever there is reason to."""
    is_left_out: bool = False
    """True if no other process is started here: the member's record says `given_up` of it."""


def following(before: SlotFailure | None, *, steps: int | None, now_s: float) -> SlotFailure:
    """Return the record after one more failure; `steps` that the process made, None if it never
    called `run`.

    The first process that had trained is replaced at once: a single failure may happen to anybody.
    Processes that never came to train cost no other node anything, so they are tried for ever.
    """
    is_clean = before is None or (steps is not None and steps >= STEADY_STEPS)
    count = 1 if is_clean or before is None else before.count + 1
    grace = 1 if steps is None else 2
    pause_s = 0.0 if count < grace else PAUSE_S * 2.0 ** min(count - grace, 16)
    pause_s = min(_PAUSE_MOST_S, pause_s)
    if steps is not None and count >= SLOT_LIMIT:
        return SlotFailure(count=count, is_left_out=True)
    return SlotFailure(count=count, retry_at_s=now_s + pause_s if pause_s else None)
