"""The page's data of jobs and nodes, as plain values. Pure.

Times are unix seconds, so that data do not change only because time passes; the page computes ages.
Data that seldom change (a change of world is final once its nodes have finished it) are separate
from data that change each second, and are sent once.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from elasticd.control.report.change_report import ChangeReport
from elasticd.control.report.hang_stacks import hang_stacks
from elasticd.control.report.node_report import NodeReport
from elasticd.control.report.report import JobReport
from elasticd.dashboard.samples import ProgressSample
from elasticd.records.account.late import LateNode
from elasticd.records.account.progress import RankProgress, newest_checkpoint_age_s
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, NodeId
from elasticd.records.reason import Phase

__all__ = [
    "Plain",
    "Sentences",
    "change_view",
    "job_row",
    "job_view",
    "listed_by",
    "node_row",
    "samples_view",
    "stacks_place",
]

Plain = dict[str, object]

RANKS_LIMIT = 256
"""The number of ranks that the page lists; of a larger world, the first ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentences:
    """The sentences of the command line, so that the page uses the same."""

    change: Callable[[ChangeReport], str]
    ending: Callable[[JobReport], str]
    late: Callable[[JobReport, LateNode], str]
    autoscale: Callable[[JobReport], Plain | None] = lambda report: None
    """Returns the shown data of a job's autoscaling; None if the job never had a policy."""


def job_row(report: JobReport, *, is_archive: bool) -> Plain:
    """Return one row of the list of jobs."""
    world = report.world if report.status.phase is Phase.RUNNING else None
    return {
        "job": report.spec.name,
        "phase": report.status.phase.value,
        "is_over": report.status.phase.is_final,
        "is_archive": is_archive,
        "generation": report.status.generation,
        "nodes": len(world.nodes) if world is not None else 0,
        "workers": world.size if world is not None else 0,
        "wanted": report.target_nodes,
        "restarts": report.status.restarts,
        "message": report.message,
        "submitted_at": report.spec.submitted_at_unix_s,
        "by": report.spec.submitted_by,
    }


def listed_by(row: Plain) -> tuple[bool, float, str]:
    """Return a sort key for rows: unfinished jobs by name, then finished jobs, the newest first."""
    is_over, name = bool(row["is_over"]), str(row["job"])
    return is_over, -cast(float, row["submitted_at"]) if is_over else 0.0, name


def node_row(report: NodeReport) -> Plain:
    """Return one row of the list of nodes."""
    node = report.node
    return {
        "node": node.node,
        "host": node.host,
        "slots": node.slots,
        "used": node.slots - report.free_slots,
        "jobs": [use.job for use in report.uses],
        "state": "draining" if report.is_drained or node.is_draining else "ready",
        "late": report.late.ratio if report.late is not None else None,
        "version": node.version,
    }


def job_view(
    report: JobReport, ranks: Sequence[RankProgress], say: Sentences, *, at_unix_s: float
) -> Plain:
    """Return the page's data of one job, without its changes and samples.

    `at_unix_s` is the time of the ranks' reports, in seconds since 1970.
    """
    spec, time = report.spec, report.time
    world = report.world if report.status.phase is Phase.RUNNING else None
    return {
        "job": spec.name,
        "phase": report.status.phase.value,
        "is_over": report.status.phase.is_final,
        "generation": report.status.generation,
        "message": report.message,
        "ending": say.ending(report) if report.status.phase.is_final else "",
        "command": " ".join((spec.entry, *spec.args)),
        "min_nodes": spec.min_nodes,
        "max_nodes": spec.max_nodes,
        "wanted": report.target_nodes,
        "restarts": report.status.restarts,
        "by": spec.submitted_by,
        "submitted_at": spec.submitted_at_unix_s,
        "members": [place.node for place in world.nodes] if world is not None else [],
        "workers": world.size if world is not None else 0,
        "steps": _steps(report),
        "late": [_late(report, node, say) for node in report.late],
        "told_at": time.at_unix_s if time is not None else 0.0,
        "account": time.plain if time is not None else None,
        "progress": _progress(ranks, at_unix_s),
        "saves": spec.checkpoint is not None,
        "checkpoint_at": _moment(newest_checkpoint_age_s(ranks), at_unix_s),
        "ranks": [_rank(rank, at_unix_s) for rank in ranks[:RANKS_LIMIT]],
        "ranks_left_out": max(0, len(ranks) - RANKS_LIMIT),
    }


def _steps(report: JobReport) -> int | None:
    """Return the steps of a job that is over, if a record has them; None while the job goes on."""
    if report.training is not None:
        return report.training.steps
    return report.step or None if report.status.phase.is_final else None


def _progress(ranks: Sequence[RankProgress], at_unix_s: float) -> Plain | None:
    """Return the progress of the first rank that knows its steps, since all ranks step together."""
    first = next((rank for rank in ranks if rank.step is not None), None)
    if first is None:
        return None
    return {
        "step": first.step,
        "steps": first.steps,
        "epoch": first.epoch_number,
        "epochs": first.epochs,
        "step_s": first.step_s,
        "scalars": dict(first.scalars),
        "not_finite": dict(first.not_finite),
        "why_paused": first.why_paused,
        "committed_at": _moment(first.committed_ago_s, at_unix_s),
    }


def _late(report: JobReport, node: LateNode, say: Sentences) -> Plain:
    return {
        "node": node.node,
        "is_now": node in report.late_now,
        "since": node.since_unix_s,
        "until": node.until_unix_s,
        "sentence": say.late(report, node),
    }


def _rank(rank: RankProgress, at_unix_s: float) -> Plain:
    return {
        "rank": rank.rank,
        "generation": rank.generation,
        "step": rank.step,
        "output_at": _moment(rank.output_ago_s, at_unix_s),
    }


def _moment(ago_s: float | None, at_unix_s: float) -> int | None:
    return round(at_unix_s - ago_s) if ago_s is not None else None


def change_view(report: JobReport, change: ChangeReport, say: Sentences) -> Plain:
    """Return one change of world with all of its details."""
    return {
        "generation": change.generation,
        "at": change.at_unix_s,
        "reason": change.reason.value,
        "is_fault": change.is_fault,
        "sentence": say.change(change),
        "arrivals": report.arrivals(change),
        "members": list(_members(report, change)),
        "lost": list(change.lost),
        "joined": list(change.joined),
        "nodes": change.nodes,
        "workers": change.world_size,
        "total_s": change.total_s,
        "unnoticed_s": change.unnoticed_s,
        "phases_s": dict(change.phases_s),
        "spent_s": dict(change.spent_s),
        "slot_s": change.slot_s,
        "step": change.step,
        "lost_steps": change.lost_steps,
        "received_bytes": change.received_bytes,
        "note": change.note,
        "culprit": _culprit(change.culprit) if change.culprit is not None else None,
        "stacks": _stacks(report, change),
    }


def stacks_place(report: JobReport, change: ChangeReport) -> tuple[Generation, NodeId] | None:
    """Return the place of the stacks that show why a world ended: a generation and the first node.

    The result is None if no rank hung.
    """
    found = hang_stacks(report, change)
    return (found.generation, found.nodes[0]) if found is not None else None


def _stacks(report: JobReport, change: ChangeReport) -> Plain | None:
    place = stacks_place(report, change)
    return {"generation": place[0], "node": place[1]} if place is not None else None


def _members(report: JobReport, change: ChangeReport) -> Iterable[str]:
    """Return the nodes that wrote about a change; for the newest world, the nodes that it names."""
    world = report.world
    if world is not None and world.generation == change.generation:
        return [place.node for place in world.nodes]
    return change.members


def _culprit(failure: Failure) -> Plain:
    return {
        "node": failure.node,
        "host": failure.host,
        "rank": failure.rank,
        "ending": failure.ending,
        "exception": failure.exception,
        "where": failure.where,
        "traceback": failure.traceback,
        "log_path": failure.log_path,
        "is_hung": failure.is_hung,
        "step": failure.step,
    }


def samples_view(samples: Iterable[ProgressSample]) -> tuple[Plain, ...]:
    """Return the samples as JSON, in their order."""
    return tuple(
        {
            "at": round(each.at_unix_s, 1),
            "step": each.step,
            "step_s": each.step_s,
            "scalars": dict(each.scalars),
        }
        for each in samples
    )
