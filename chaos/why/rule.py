"""Compares what `elasticd why` said of each change with what chaos did. Pure.

Faults are taken in groups: one, and those that came before its effects were over. What changed
between the first of a group and the first of the next one is this group's doing, as the next one
waits for a commit at full size. A fault counts as named right if

* a change of its group names it: the cause, and the process or node that it struck; or
* nothing changed, and right behaviour is that nothing does; or
* it fell together with another fault of its group into one change, which names the other. One
  change of world has one cause in `why`, as it has one place to begin to look at.

`why` reads etcd: where that was struck too, a name has its time from when it is back.

A change that was not planned and that names no fault of its group is a false name, which counts
like a fault named wrong. That a collective broke is not, if it blames nobody and another change of
the group names who broke it: all others feel that at once, and who it was may be told later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from chaos.history.records import History, Struck, Told
from chaos.history.recovery import Commit
from chaos.plan.fault import Kind
from chaos.verdict.finding import Finding, finding_of
from chaos.why.expectation import EXPECTED, PLANNED, blames_nobody, is_right

__all__ = ["Group", "groups_of", "judged_causes"]


@dataclass(slots=True, kw_only=True)
class Group:
    """Faults that overlap, and the changes that they brought about."""

    faults: list[Struck]
    changes: list[list[Told]] = field(default_factory=list)
    """All that was said of each generation, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What became of the faults."""

    wrong: list[str]
    shared: int = 0
    """Faults that fell into a change which names another one."""
    early: int = 0
    """Changes of which it was not known yet who broke the collective."""
    late_s: list[float]
    """For each fault that is named, how long after the next commit it was; 0: before it."""


def judged_causes(
    history: History, found: Sequence[Commit], share: float, within_s: float
) -> tuple[Finding, ...]:
    """Judge what `why` said; nothing of a history in which nobody looked.

    `share`: of the faults, that must be named right; `within_s`: after the next commit.
    """
    if not history.told or not history.struck:
        return ()
    pids = {(each.generation, each.rank): each.pid for each in history.entered}
    named, committed = Named(wrong=[], late_s=[]), _Commits(found)
    undone_s = {each.number: each.at_s for each in history.undone}
    for group in groups_of(history):
        etcd_s = [undone_s.get(each.number, 0.0) for each in group.faults if _is_of_etcd(each)]
        more = _judge(group, pids, committed, max(etcd_s, default=0.0))
        named = Named(
            wrong=[*named.wrong, *more.wrong],
            shared=named.shared + more.shared,
            early=named.early + more.early,
            late_s=[*named.late_s, *more.late_s],
        )
    count = len(history.struck)
    right = max(0, count - len(named.wrong))
    slowest_s = max(named.late_s, default=0.0)
    # A share of few faults is all of them.
    is_enough = right >= share * count
    late = [f"a cause stood in why {late_s:.1f} s after the next commit" for late_s in named.late_s]
    late = [text for text, late_s in zip(late, named.late_s, strict=True) if late_s > within_s]
    told = f" ({'; '.join(named.wrong)})" if named.wrong and is_enough else ""
    claim = (
        f"why names cause and culprit of {right} of {count} faults right, {named.shared} of them "
        f"by a fault that they fell together with, {slowest_s:.1f} s after the next commit at "
        f"the latest; {named.early} changes before that blame nobody{told}"
    )
    return (finding_of("cause", claim, count, [*([] if is_enough else named.wrong), *late]),)


def groups_of(history: History) -> list[Group]:
    """Put the changes to the faults that they came from; those before the first one to nobody."""
    groups = [Group(faults=[])]
    for fault in history.struck:
        if fault.is_overlap and groups[-1].faults:
            groups[-1].faults.append(fault)
        else:
            groups.append(Group(faults=[fault]))
    began_s: dict[int, float] = {}
    for each in history.entered:
        began_s.setdefault(each.generation, each.at_s)
    said: dict[int, list[Told]] = {}
    for told in history.told:
        said.setdefault(told.generation, []).append(told)
    for generation, all_said in sorted(said.items()):
        # It is read a moment later than it began; nobody may have come as far as to begin it.
        at_s = min(began_s.get(generation, all_said[0].at_s), all_said[0].at_s)
        before = [group for group in groups[1:] if group.faults[0].at_s <= at_s]
        (before[-1] if before else groups[0]).changes.append(all_said)
    return groups


def _is_of_etcd(fault: Struck) -> bool:
    return fault.kind in (Kind.ETCD_KILL, Kind.ETCD_STOP, Kind.ETCD_QUORUM_STOP)


def _judge(
    group: Group, pids: Mapping[tuple[int, int], int], commits: "_Commits", etcd_s: float
) -> Named:
    """Compare a group's changes with its faults; `etcd_s`: when etcd was back, 0: it was there."""
    named = Named(wrong=[], late_s=[])
    right = {
        fault.number: [said for said in group.changes if is_right(said[-1], fault, pids)]
        for fault in group.faults
    }
    is_any_named = any(right.values())
    known = [said for said in group.changes if said[-1].reason in PLANNED]
    known += [said for found in right.values() for said in found]
    if is_any_named:
        early = [said for said in group.changes if blames_nobody(said[-1])]
        known, named = known + early, replace(named, early=len(early))
    strangers = [said for said in group.changes if said not in known]
    shared = 0
    for fault in group.faults:
        if right[fault.number]:
            late_s = (commits.late_s(s, fault, pids, etcd_s) for s in right[fault.number])
            named.late_s.append(min(late_s))
        elif _may_pass(fault) and not strangers:
            continue
        elif len(group.faults) > 1 and is_any_named:
            shared += 1
        else:
            named.wrong.append(f"{_name(fault)}: {_words(group.changes) or 'nothing is told'}")
    named.wrong.extend(
        f"generation {said[-1].generation}: {_words([said])}, which nothing brought about"
        # As many as there are faults named wrong are those names.
        for said in strangers[len(named.wrong) :]
    )
    return replace(named, shared=shared)


def _may_pass(fault: Struck) -> bool:
    want = EXPECTED[fault.kind]
    return want.may_pass or 0.0 < fault.for_s < want.least_s


class _Commits:
    """Finds the first commit of a generation, or of a later one."""

    def __init__(self, found: Sequence[Commit]) -> None:
        self._first_s: dict[int, float] = {}
        earliest_s = float("inf")
        for commit in sorted(found, key=lambda each: -each.generation):
            earliest_s = min(earliest_s, commit.at_s)
            self._first_s[commit.generation] = earliest_s

    def late_s(
        self,
        said: Sequence[Told],
        fault: Struck,
        pids: Mapping[tuple[int, int], int],
        etcd_s: float,
    ) -> float:
        """Return how long after that commit, or etcd's return, the change was named for good."""
        at_s = said[-1].at_s
        for told in reversed(said):
            if not is_right(told, fault, pids):
                break
            at_s = told.at_s
        generation = said[-1].generation
        later = [each for each in self._first_s if each >= generation]
        return max(0.0, at_s - max(etcd_s, self._first_s[min(later)])) if later else 0.0


def _words(changes: Sequence[Sequence[Told]]) -> str:
    """Say what was told of changes, planned ones left out where there are others."""
    last = [said[-1] for said in changes]
    last = [each for each in last if each.reason not in PLANNED] or last
    return ", ".join(_word(each) for each in last)


def _word(told: Told) -> str:
    ending = " ".join(part for part in (told.signal, told.exception) if part)
    who = f" of rank {told.rank} on {told.node} {ending}".rstrip() if told.node else ""
    lost = f", lost {', '.join(told.lost)}" if told.lost else ""
    return f"{told.reason}{who}{lost}"


def _name(fault: Struck) -> str:
    return f"fault {fault.number} ({fault.kind} of {fault.victim})"
