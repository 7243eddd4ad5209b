"""The changes of a long job that etcd no longer has, folded into sums from `incidents.jsonl`.

etcd has the incidents of the newest few hundred generations. Each agent also appends its node's
incidents to a file in the job's folder (docs/incidents.md), which stays with the logs. If that file
is on this machine, as for a local run, this module counts its older lines; otherwise a sentence
says where the file is.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from elasticd.bundle.job_files import is_folder_of
from elasticd.cli.terminal import words
from elasticd.control.report.report import JobReport
from elasticd.records.reason import Reason

__all__ = ["EarlierChanges", "earlier_lines", "fold", "read_earlier"]

FILES = ("incidents.jsonl.1", "incidents.jsonl")
"""The older file is first: a later line of the same generation and node replaces an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierChanges:
    """The sums of the changes that a file has and that are older than the oldest one in etcd."""

    count: int = 0
    by_reason: Mapping[str, int] = field(default_factory=dict)
    """The number of changes for each reason, the most frequent first."""
    spent_s: Mapping[str, float] = field(default_factory=dict)
    """The cost by time cause, in slot-seconds of the nodes that wrote into the file."""
    lost_steps: int = 0


@dataclass(slots=True)
class _Change:
    reason: str
    spent_s: dict[str, Mapping[str, float]] = field(default_factory=dict)
    lost_steps: int = 0


def read_earlier(report: JobReport, run_folder: Path, *, is_cluster: bool) -> EarlierChanges:
    """Return the sums of the lines in the job's folder on this machine; empty sums without lines.

    `run_folder` is used if the job's spec names no run folder. Nothing is read if etcd has all
    incidents of the job.
    """
    first = words.oldest_kept(report)
    if first <= 1:
        return EarlierChanges()
    own = [Path(report.spec.run_folder)] if report.spec.run_folder else []
    folders = [*own, run_folder] if is_cluster else [run_folder, *own]
    for folder in (each / report.spec.name for each in folders):
        if is_folder_of(folder, report.spec, is_cluster=is_cluster):
            return fold(_lines(folder), before=first)
    return EarlierChanges()


def fold(lines: Iterable[str], *, before: int) -> EarlierChanges:
    """Add up the changes with a generation of at least 2 and below `before`.

    Malformed lines are left out, and so are lines about late nodes, which have no generation.
    """
    changes: dict[int, _Change] = {}
    for line in lines:
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            plain = json.loads(line)
            generation, node = int(plain["generation"]), str(plain["node"])
            if not 1 < generation < before:
                continue
            spent_s = {str(cause): float(s) for cause, s in plain["spent_s"].items()}
            change = changes.setdefault(generation, _Change(reason=str(plain["reason"])))
            change.spent_s[node] = spent_s
            change.lost_steps = max(change.lost_steps, int(plain["lost_steps"]))
    spent: Counter[str] = Counter()
    for change in changes.values():
        for part in change.spent_s.values():
            spent.update(part)
    return EarlierChanges(
        count=len(changes),
        by_reason=dict(Counter(change.reason for change in changes.values()).most_common()),
        spent_s={cause: round(value, 2) for cause, value in spent.most_common()},
        lost_steps=sum(change.lost_steps for change in changes.values()),
    )


def earlier_lines(report: JobReport, earlier: EarlierChanges) -> list[str]:
    """Return lines about the changes that etcd no longer has; an empty list if etcd has all."""
    if not earlier.count:
        return words.unkept_lines(report)
    kinds = "; ".join(f"{count} x {_because(why)}" for why, count in earlier.by_reason.items())
    lines = [
        f"{words.unkept(report)}; of their changes {words.FILE} has {earlier.count}:",
        f"          {kinds}",
    ]
    parts = ", ".join(
        f"{cause} {words.seconds(value)}" for cause, value in earlier.spent_s.items() if value
    )
    if parts:
        cost = words.seconds(sum(earlier.spent_s.values()))
        lines.append(f"          cost {cost} of slots: {parts}")
    if earlier.lost_steps:
        lines.append(f"          {words.counted(earlier.lost_steps, 'step')} done again")
    return lines


def _because(reason: str) -> str:
    with suppress(ValueError):
        return words.because(Reason(reason))
    return reason.replace("_", " ")


def _lines(folder: Path) -> Iterator[str]:
    for name in FILES:
        with suppress(OSError), (folder / name).open(encoding="utf-8", errors="replace") as file:
            yield from file
