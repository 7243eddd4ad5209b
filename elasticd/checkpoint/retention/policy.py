"""Which checkpoints stay. Pure: entries in, numbers out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elasticd.checkpoint.format.entry import LogEntry

__all__ = ["ALWAYS", "Retention", "to_keep"]

ALWAYS = 2
"""How many of the newest complete ones stay, whatever the policy: if the newest turns out damaged
there is one more, and a reader that began a moment ago can finish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    last: int = 3
    """Keep this many of the newest; 0 for all."""
    every_steps: int = 0
    """Keep also the first checkpoint at or after each multiple of this many steps; 0 for none."""


def to_keep(
    policy: Retention,
    entries: Sequence[LogEntry],
    leased: Iterable[int] = (),
    *,
    least: int = ALWAYS,
) -> set[int]:
    """Return the numbers to keep of these checkpoints, which are in the order of their numbers.

    Somebody reads the checkpoints in `leased`, so they stay too. The `least` newest ones stay even
    if the policy says fewer.
    """
    numbers = [entry.number for entry in entries]
    if policy.last == 0:
        return set(numbers)
    kept = set(numbers[-max(least, policy.last) :])
    if policy.every_steps:
        seen: set[int] = set()
        for entry in entries:
            milestone = entry.snapshot.step // policy.every_steps
            if milestone and milestone not in seen:
                seen.add(milestone)
                kept.add(entry.number)
    return kept | (set(leased) & set(numbers))
