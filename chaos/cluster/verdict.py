"""What held and what did not, from the log alone; and what cannot be judged here, and why. Pure."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum

from chaos.cluster.fault import CONSEQUENCES, TRAITS
from chaos.cluster.plan import Plan
from chaos.cluster.recovery import Log, Track

__all__ = ["NOT_JUDGED", "Finding", "Result", "Verdict", "judge"]

NOT_JUDGED = {
    "times": "how long a recovery took in milliseconds: clocks of several machines are not "
    "compared, and the status of a job is written every 10 s",
    "parity": "that the loss is that of an undisturbed run: there is none to compare with",
    "samples": "that each sample counts exactly once: the ranks write down nothing for us",
}
"""Rules of `python -m chaos run` that need one machine, or a job that was made for them."""

_BROKEN_ENDS = frozenset({"Failed", "Lost"})


class Result(StrEnum):
    HELD = "held"
    BROKEN = "broken"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One rule, and what came of it."""

    rule: str
    result: Result
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All rules, the faults, and how the run came to its end."""

    findings: tuple[Finding, ...]
    log: Log
    ended: str
    """Why there are no further faults, as a sentence."""

    @property
    def holds(self) -> bool:
        return all(finding.result is not Result.BROKEN for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """0: every rule that could be judged held; 1: one was broken; 3: nothing was done."""
        if not self.holds:
            return 1
        return 0 if self.log.tracks else 3

    def to_text(self) -> str:
        """Return tables for a person."""
        lines = [f"{len(self.log.tracks)} faults; the end: {self.ended}."]
        for track in self.log.tracks:
            lines.append(f"  {track.fault.number:>3} {track.fault.kind:<17} {_outcome(track)}")
            if track.fault.note:
                lines.append(f"      {track.fault.note}")
        lines.append("")
        lines += [f"  {one.rule:<10} {one.result:<11} {one.why}" for one in self.findings]
        lines.append("")
        lines.append("Every rule that was judged held." if self.holds else "A rule was BROKEN.")
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return all of it on one line."""
        return json.dumps(
            {
                "holds": self.holds,
                "ended": self.ended,
                "most_disturbed": self.log.most_disturbed,
                "rules": [asdict(one) for one in self.findings],
                "faults": [_plain(track, self.log.began_s) for track in self.log.tracks],
            }
        )


def judge(log: Log, plan: Plan, *, ended: str, ended_s: float) -> Verdict:
    """Judge a run that ended at a moment of the log's clock."""
    findings = (
        _alive(log),
        _goes_on(log, plan, ended_s),
        _size(log, plan, ended_s),
        _steps(log, plan),
        _at_once(log, plan),
        _losses(log, plan),
        *(
            Finding(rule=rule, result=Result.NOT_JUDGED, why=why)
            for rule, why in NOT_JUDGED.items()
        ),
    )
    return Verdict(findings=findings, log=log, ended=ended)


# --- private ----------------------------------------------------------------------------------


def _alive(log: Log) -> Finding:
    bad = {name: job for name, job in log.ends.items() if job.phase in _BROKEN_ENDS}
    if bad:
        told = "; ".join(f"{name} is {job.phase}: {job.message}" for name, job in bad.items())
        return Finding(rule="alive", result=Result.BROKEN, why=told.rstrip(".: "))
    states = [f"job {name!r} is {job.phase}" for name, job in sorted(log.last.items())]
    return Finding(
        rule="alive",
        result=Result.HELD,
        why=f"no job failed ({', '.join(states)})",
    )


def _goes_on(log: Log, plan: Plan, ended_s: float) -> Finding:
    return _in_time(
        "goes on",
        "a further step was seen",
        plan,
        ended_s,
        [(track, track.went_on_s) for track in log.tracks],
    )


def _size(log: Log, plan: Plan, ended_s: float) -> Finding:
    return _in_time(
        "size",
        "all wanted nodes made steps again",
        plan,
        ended_s,
        [(track, track.recovered_s) for track in log.tracks],
    )


def _in_time(
    rule: str, what: str, plan: Plan, ended_s: float, seen: list[tuple[Track, float | None]]
) -> Finding:
    """Judge what is to be seen after each fault within its time."""
    limit_s = plan.recover_s
    late = [
        track.fault.number
        for track, seen_s in seen
        if (ended_s if seen_s is None else seen_s) > track.fault.at_s + limit_s
    ]
    if late:
        numbers = ", ".join(map(str, late))
        why = f"after fault {numbers} it was not seen in {limit_s:.0f} s that {what}"
        return Finding(rule=rule, result=Result.BROKEN, why=why)
    took = [seen_s - track.fault.at_s for track, seen_s in seen if seen_s is not None]
    cut = [str(track.fault.number) for track, seen_s in seen if seen_s is None]
    if not took:
        return Finding(rule=rule, result=Result.NOT_JUDGED, why="no fault was followed to its end")
    why = f"after {len(took)} faults {what}, within {max(took):.0f} s as the status shows it"
    if cut:
        why += f"; not judged for fault {', '.join(cut)}, as the run ended before"
    return Finding(rule=rule, result=Result.HELD, why=why)


def _steps(log: Log, plan: Plan) -> Finding:
    deep = [fall for fall in log.falls if fall.seen - fall.now > plan.steps_back]
    if deep:
        worst = max(deep, key=lambda fall: fall.seen - fall.now)
        why = (
            f"the status of {worst.job} showed step {worst.seen}, and later {worst.now}: more than "
            f"--steps-back {plan.steps_back} (a script that is started anew goes back to its "
            "checkpoint: give it a larger one)"
        )
        return Finding(rule="steps", result=Result.BROKEN, why=why)
    if not log.most_step:
        why = "the status never showed a step that the ranks reported"
        return Finding(rule="steps", result=Result.NOT_JUDGED, why=why)
    ends = [f"job {name!r} came to step {step}" for name, step in sorted(log.most_step.items())]
    most = f"{plan.steps_back} step" + "s" * (plan.steps_back != 1)
    why = f"no job went back by more than {most}, as the status shows it ({', '.join(ends)})"
    return Finding(rule="steps", result=Result.HELD, why=why)


def _at_once(log: Log, plan: Plan) -> Finding:
    is_so = log.most_disturbed <= plan.at_once
    return Finding(
        rule="at once",
        result=Result.HELD if is_so else Result.BROKEN,
        why=f"at once {_pods(log.most_disturbed)} disturbed at most, {plan.at_once} may be",
    )


def _losses(log: Log, plan: Plan) -> Finding:
    """Compare what the status counts as losses with what was done."""
    if not log.tracks or log.open:
        why = "the run ended before its last fault was overcome, so the counts are not final"
        if not log.tracks:
            why = "nothing was done"
        return Finding(rule="losses", result=Result.NOT_JUDGED, why=why)
    if wrong := next((each for name in sorted(log.last) for each in _wrong(log, name, plan)), ""):
        return Finding(rule="losses", result=Result.BROKEN, why=wrong)
    grown = sum((_grown(log, name) for name in log.last), Counter[str]())
    told = ", ".join(f"{reason} {count}" for reason, count in sorted(grown.items())) or "none"
    why = f"each loss that the status counts is explained by a fault ({told})"
    return Finding(rule="losses", result=Result.HELD, why=why)


def _wrong(log: Log, name: str, plan: Plan) -> Iterator[str]:
    """Yield what is wrong with the losses of one job, as sentences."""
    faults = [track.fault for track in log.tracks if name in track.fault.before]
    kinds = [fault.kind for fault in faults]
    grown = _grown(log, name)
    for reason, count in sorted(grown.items()):
        right = sum(reason in TRAITS[kind].reasons for kind in kinds)
        right = len(kinds) if reason in CONSEQUENCES else right
        if count > right:
            yield (
                f"{name} counts {count} losses by {reason} more than before, and {right} faults "
                "explain that reason"
            )
    told = sum(count for reason, count in grown.items() if reason not in CONSEQUENCES)
    needed = sum(fault.is_sure and not TRAITS[fault.kind].may_pass for fault in faults)
    # Faults that overlap may fall into one change of world, which has one reason.
    least = needed if plan.at_once == 1 else min(needed, 1)
    if told > len(kinds):
        yield f"{name} counts {told} losses more than before, and {len(kinds)} faults were done"
    # etcd forgets the oldest changes of a job that has had very many.
    if told < least and not _has_forgotten(log, name):
        yield f"{name} counts {told} losses more than before, and {least} faults must be losses"


def _grown(log: Log, name: str) -> Counter[str]:
    before, now = log.first[name].losses, log.last[name].losses
    return Counter(
        {
            reason: count - before.get(reason, 0)
            for reason, count in now.items()
            if count > before.get(reason, 0)
        }
    )


def _has_forgotten(log: Log, name: str) -> bool:
    before, now = log.first[name].losses, log.last[name].losses
    return any(now.get(reason, 0) < count for reason, count in before.items())


def _outcome(track: Track) -> str:
    fault = track.fault
    if track.recovered_s is not None:
        return f"{fault.victim}; overcome within {track.recovered_s - fault.at_s:.0f} s"
    return f"{fault.victim}; not seen to be overcome"


def _pods(count: int) -> str:
    return f"{count} pod{' was' if count == 1 else 's were'}"


def _plain(track: Track, began_s: float) -> dict[str, object]:
    fault = track.fault

    def since_s(at_s: float | None) -> float | None:
        return round(at_s - fault.at_s, 1) if at_s is not None else None

    return {
        "number": fault.number,
        "kind": fault.kind,
        "node": fault.node,
        "victim": fault.victim,
        "at_s": round(fault.at_s - began_s, 1),
        "jobs": sorted(fault.before),
        "went_on_within_s": since_s(track.went_on_s),
        "overcome_within_s": since_s(track.recovered_s),
        "note": fault.note,
    }
