"""Whether elasticd's account of the time agrees with what the raw history says.

elasticd counts slots, and a slot whose worker was lost costs time although the others train on.
What can be compared is for how long the *job* stood still. By the account that is, of each change,
the least that any node tells of it for each of its slots: what it cost a node that lost nothing
itself. By the history it is the time from the last commit before the change to the first one after
it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.recovery import Commit
from chaos.verdict import Finding, finding_of

__all__ = ["judged_account", "seen_stalls", "told_stalls"]

FILE = Path("runs", "chaos", "incidents.jsonl")
STOOD_STILL = ("notice", "redone", "recover", "resize", "restore", "wait")
MOST_APART = 0.01
"""Of the time from the first commit to the last."""


def judged_account(folder: Path, found: Sequence[Commit], slots: int) -> tuple[Finding, ...]:
    """Compare both, for a run whose agents wrote incidents; `slots` of each node."""
    path = folder / FILE
    if not path.exists() or len(found) < 2:
        return ()
    with path.open() as lines:
        told = told_stalls((json.loads(line) for line in lines), slots)
    seen = seen_stalls(found)
    both = sorted(told.keys() & seen.keys())
    window_s = found[-1].at_s - found[0].taken_s
    told_s, seen_s = sum(told[each] for each in both), sum(seen[each] for each in both)
    apart = abs(told_s - seen_s) / window_s
    wrong = []
    if apart > MOST_APART:
        each = ", ".join(f"{one}: {told[one]:.2f}/{seen[one]:.2f}" for one in both)
        wrong.append(
            f"{told_s:.2f} s told, {seen_s:.2f} s seen in {window_s:.1f} s; by generation {each}"
        )
    claim = "the account of the time agrees with the commits within a point"
    return (finding_of("account", claim, len(both), wrong),)


def told_stalls(incidents: Iterable[Mapping[str, Any]], slots: int) -> dict[int, float]:
    """By generation, for how long a node that lost nothing stood still before it."""
    stalls: dict[int, float] = {}
    for incident in incidents:
        spent_s = incident.get("spent_s", {})
        stood_s = sum(spent_s.get(cause, 0.0) for cause in STOOD_STILL) / slots
        generation = incident["generation"]
        stalls[generation] = min(stood_s, stalls.get(generation, stood_s))
    return stalls


def seen_stalls(found: Sequence[Commit]) -> dict[int, float]:
    """By generation, the time from the last commit before to its first one."""
    stalls: dict[int, float] = {}
    before: Commit | None = None
    for commit in sorted(found, key=lambda each: each.at_s):
        if before is not None and commit.generation > before.generation:
            stalls[commit.generation] = commit.at_s - before.at_s
        before = commit
    return stalls
