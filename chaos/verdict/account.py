"""Whether elasticd's account of the time agrees with what the raw history says.

elasticd counts slots, and a slot whose worker was lost costs time although the others train on.
What can be compared is for how long the *job* stood still. By the account that is, of each
change, what a node tells of it for each of its slots, if it was in the world before and lost and
gained none: where something broke the most (a slot that was lost tells later), where nodes joined
the least of those that were there before with as many slots and did not leave meanwhile (one that
joined tells of its start, or of what it lost before). Where every node lost a slot, what each
tells is of those that it has left. By the history it is the time from the last commit before the
change to the first one after it.

A node tells one sum for all of its slots. If no node kept its slots through a change, and the sum
cannot be divided exactly, it bounds what the job stood still for, and what was seen has to lie
between the bounds (`told_bounds`).
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from chaos.history.lineage import Lineage
from chaos.history.recovery import Commit
from chaos.verdict.finding import Finding, finding_of

__all__ = ["judged_account", "seen_stalls", "told_bounds", "told_stalls"]

FILE = "runs/*/incidents.jsonl"
"""The folder has the job's name."""
LEAVING = ("drained", "preempted", "node_left")
PLANNED = ("joined", "scaled", *LEAVING)
STOOD_STILL = ("notice", "redone", "recover", "resize", "restore", "wait")
CHANGE_S = 0.05
"""An agent hears of each end of a standstill by a message, from a process that has other work."""


def judged_account(
    folder: Path, lineage: Lineage, found: Sequence[Commit], slots: int, within: float
) -> tuple[Finding, ...]:
    """Compare both, for a run whose agents wrote incidents; `slots` of each node.

    `within`: the difference that is allowed, as a share of the time from the first commit to the
    last, or 50 ms a change if that is more; 0: any.
    """
    paths = sorted(folder.glob(FILE))
    if not paths or len(found) < 2:
        return ()
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    # A late node changes no world, and before the first commit nothing stood still yet.
    first = min(commit.generation for commit in found)
    changes = [line for line in lines if "late" not in line]
    incidents = [change for change in changes if change["generation"] > first]
    if all(change["step"] is None for change in changes):
        return ()  # Restart mode, where nobody tells of commits.
    seen = seen_stalls(found)
    told = told_stalls(incidents, slots, seen, _trained(lineage))
    bounds = told_bounds(incidents, seen, _trained(lineage))
    told.update({each: _nearest(seen[each], *bounds[each]) for each in bounds})
    both = sorted(told.keys() & seen.keys())
    window_s = found[-1].at_s - found[0].taken_s
    told_s, seen_s = sum(told[each] for each in both), sum(seen[each] for each in both)
    most_s = max(within * window_s, CHANGE_S * len(both))
    wrong = []
    if within and abs(told_s - seen_s) > most_s:
        each = ", ".join(f"{one}: {told[one]:.2f}/{seen[one]:.2f}" for one in both)
        wrong.append(
            f"{told_s:.2f} s told, {seen_s:.2f} s seen in {window_s:.1f} s; by generation {each}"
        )
    claim = (
        f"the account of the time agrees with the commits: {told_s:.2f} s told, {seen_s:.2f} s "
        f"seen in {window_s:.1f} s"
    )
    return (finding_of("account", claim, len(both), wrong),)


def told_stalls(
    incidents: Iterable[Mapping[str, Any]],
    slots: int,
    seen: Iterable[int],
    trained: Mapping[int, Mapping[str, int]],
) -> dict[int, float]:
    """Return, by generation, how long a node that lost and gained nothing stood still before it.

    What a generation cost that made no step counts with the next one that did (`seen`). Of what a
    node told of a generation more than once, the last report counts: it includes those before.
    `trained`: by generation, how many slots of each node were in it; where none was whole, these
    divide what their node tells.
    """
    found: dict[int, float] = {}
    for generation, parts in _changes(incidents, seen):
        # Not every node tells of a generation without a step: what that cost comes with the next.
        stood: dict[str, float] = {}
        counted: list[Sequence[Mapping[str, Any]]] = [
            part for part in parts if not _is_of_joiner(part)
        ]
        if not all(map(_is_of_joins, counted)):
            counted = [_of_those_that_stayed(part, trained) for part in counted]
        for incident in chain(*counted):
            spent_s = incident.get("spent_s", {})
            telling = _telling(trained.get(incident["generation"], {}), incident["node"], slots)
            stood_s = sum(spent_s.get(cause, 0.0) for cause in STOOD_STILL) / telling
            stood[incident["node"]] = stood.get(incident["node"], 0.0) + stood_s
        is_planned = all(incident["reason"] in PLANNED for incident in chain(*parts))
        if stood and is_planned:
            left = {name for incident in chain(*parts) for name in incident.get("lost", ())}
            stayed = (stood.keys() & _stayed(trained, generation)) - left
            found[generation] = min(stood[node] for node in stayed or stood)
        elif stood:
            found[generation] = max(stood.values())
    return found


def told_bounds(
    incidents: Iterable[Mapping[str, Any]],
    seen: Iterable[int],
    trained: Mapping[int, Mapping[str, int]],
) -> dict[int, tuple[float, float]]:
    """Return, by generation, the least and the most that the job can have stood still before it.

    Only of changes through which no node kept its slots, and of those

    * faults with a generation that nobody entered: it is not known which slots told of that one.
      The slots that are left told of all the time, the others of a part of it;
    * planned ones, after which a node has more slots than before: `resize` is the time of those
      that trained before, and of a new one only from when the world was agreed on.
    """
    found: dict[int, tuple[float, float]] = {}
    for generation, parts in _changes(incidents, seen):
        before, now = _before(trained, generation), trained.get(generation, {})
        here = [node for node in now if before.get(node)]
        if not here or _stayed(trained, generation):
            continue
        told = list(chain(*parts))
        if all(map(_is_of_joins, parts)):
            spent_s = {node: _spent_s(told, node, ("resize",)) for node in here}
            pairs = [(spent_s[n] / now[n], spent_s[n] / before[n]) for n in here if spent_s[n]]
        elif any(part[0]["generation"] not in trained for part in parts):
            spent_s = {node: _spent_s(told, node, STOOD_STILL) for node in here}
            pairs = [(spent_s[n] / max(before[n], now[n]), spent_s[n] / now[n]) for n in here]
        else:
            continue
        if pairs:
            # They all stood still for the same time.
            least = max(each for each, _ in pairs)
            found[generation] = (least, max(least, min(each for _, each in pairs)))
    return found


def _changes(
    incidents: Iterable[Mapping[str, Any]], seen: Iterable[int]
) -> Iterator[tuple[int, list[list[Mapping[str, Any]]]]]:
    """For each generation seen, return what was told of it and of those before without a step."""
    told: dict[int, list[Mapping[str, Any]]] = {}
    last = {(incident["generation"], incident["node"]): incident for incident in incidents}
    for incident in last.values():
        told.setdefault(incident["generation"], []).append(incident)
    for generation in seen:
        yield generation, [told.pop(each) for each in sorted(told) if 1 < each <= generation]


def _spent_s(told: Iterable[Mapping[str, Any]], node: str, causes: Sequence[str]) -> float:
    spent_s = [each.get("spent_s", {}) for each in told if each["node"] == node]
    return float(sum(each.get(cause, 0.0) for each in spent_s for cause in causes))


def _nearest(seen_s: float, least_s: float, most_s: float) -> float:
    return min(max(seen_s, least_s), most_s)


def _stayed(trained: Mapping[int, Mapping[str, int]], generation: int) -> set[str]:
    """Name the nodes that had as many slots in the world before as in this one."""
    # Nobody entered a world that was struck while it formed: the next one shows who was in it.
    now = trained.get(min((each for each in trained if each >= generation), default=0), {})
    before = _before(trained, generation)
    return {node for node, count in now.items() if before.get(node) == count}


def _before(trained: Mapping[int, Mapping[str, int]], generation: int) -> Mapping[str, int]:
    """Return how many slots of each node were in the last world before this one."""
    return trained.get(max((each for each in trained if each < generation), default=0), {})


def _trained(lineage: Lineage) -> dict[int, Counter[str]]:
    """Return how many slots of each node were in each generation."""
    return {
        each.generation: Counter(entered.node for entered in each.entered.values())
        for each in lineage.rounds
    }


def _telling(trained: Mapping[str, int], node: str, slots: int) -> int:
    """Return by how many slots a node's report is divided: all of its own, if any node had all."""
    is_any_whole = any(count == slots for count in trained.values())
    return slots if is_any_whole else trained.get(node, slots)


def _of_those_that_stayed(
    told: Sequence[Mapping[str, Any]], trained: Mapping[int, Mapping[str, int]]
) -> Sequence[Mapping[str, Any]]:
    """Return what is told of a change by those that did not join in it, if they are known.

    After a change without a step nodes may join, and others join with the loss of a node: they tell
    of what they lost before, for as long as they were away, and the job went on without them.
    """
    generation = told[0]["generation"]
    joins = _is_of_joins(told)
    stayed = _stayed(trained, generation) if joins else _before(trained, generation).keys()
    return [incident for incident in told if incident["node"] in stayed] or told


def _is_of_joins(told: Sequence[Mapping[str, Any]]) -> bool:
    return all(
        incident["reason"] in PLANNED and incident["reason"] not in LEAVING for incident in told
    )


def _is_of_joiner(told: Sequence[Mapping[str, Any]]) -> bool:
    """Whether of a planned change only one of several nodes tells, before the next one came.

    It is the one that joined, and tells what it lost before; the others go on until then. Where
    nodes left none joined: who does not tell was struck before it did.
    """
    return _is_of_joins(told) and len(told) == 1 and told[0].get("nodes", 1) > 1


def seen_stalls(found: Sequence[Commit]) -> dict[int, float]:
    """Return, by generation, the time from the last commit before to its first one."""
    stalls: dict[int, float] = {}
    before: Commit | None = None
    for commit in sorted(found, key=lambda each: each.kept_s):
        if before is not None and commit.generation > before.generation:
            stalls[commit.generation] = commit.kept_s - before.kept_s
        before = commit
    return stalls
