"""Compares the goodput that `elasticd why` shows in the end with what the ranks wrote down. Pure.

elasticd's goodput is a share of the *slots'* time. So of the history it is, for each generation,
the time from its first commit to its last one, for each of its ranks; what goes before is recovery.
Steps that were done before (a job without replicas goes back to a snapshot) are left out: elasticd
counts them as done again, and the first time as training. Steps that waited for data or for a copy
of the state are in that time: elasticd counts them apart, the history cannot tell them. Of what all
this is a share, elasticd alone knows: for how long each agent held its slots.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.history.lineage import Lineage
from chaos.history.recovery import Commit
from chaos.plan.scenario import Verdict
from chaos.verdict.finding import Finding, finding_of

__all__ = ["judged_goodput", "trained_s"]

STEPS = ("train", "data", "save")
POINT = 0.01
CHANGE_S = 0.05
"""For each slot and change, if that is more: a worker tells how far it is five times a second, and
what one that was killed did since it told nobody knows."""


def judged_goodput(
    path: Path, lineage: Lineage, found: Sequence[Commit], want: Verdict
) -> tuple[Finding, ...]:
    """Judge the account that `path` has; nothing where nobody asked `why`, or it has none."""
    account: Mapping[str, Any] | None = None
    if path.exists():
        account = json.loads(path.read_text()).get("account")
    if not account or not account["total_s"]:
        return ()
    seconds: Mapping[str, float] = account["seconds"]
    total_s = float(account["total_s"])
    unexplained = seconds["unexplained"] / total_s
    wrong = [f"{seconds['unexplained']:.1f} of {total_s:.1f} slot-seconds have no cause"]
    claim = (
        f"{unexplained:.1%} of the slots' time has no cause, at most {want.most_unexplained:.0%}"
    )
    is_explained = unexplained <= want.most_unexplained
    rest = finding_of("no cause", claim, 1, [] if is_explained else wrong)
    used_s = total_s - seconds["spare"]
    if not account["has_steps"] or used_s <= 0 or not found:
        return (rest,)
    told = sum(seconds[cause] for cause in STEPS) / used_s
    seen = trained_s(found) / used_s
    sentence = f"{told:.1%} of the slots' time went to steps by the account, {seen:.1%} by commits"
    changes_s = CHANGE_S * (len(lineage.rounds) - 1) * max(each.size for each in lineage.rounds)
    most = max(POINT, changes_s / used_s)
    wrong = [sentence] if want.account_within and abs(told - seen) > most else []
    return (finding_of("slots", sentence, 1, wrong), rest)


def trained_s(found: Sequence[Commit]) -> float:
    """Return the slot-seconds between commits of one generation, of steps that are done for the
    first time.
    """
    by_generation: dict[int, list[Commit]] = {}
    for commit in found:
        by_generation.setdefault(commit.generation, []).append(commit)
    total_s, newest = 0.0, 0
    for _, every in sorted(by_generation.items()):
        again_s = [each.kept_s for each in every if each.step <= newest]
        first_s = [each.kept_s for each in every if each.step > newest]
        if first_s:
            began_s = max(again_s, default=min(first_s))
            total_s += (max(first_s) - began_s) * every[0].size
        newest = max(newest, *(each.step for each in every))
    return total_s
