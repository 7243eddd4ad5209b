"""Sentences about news, changes and failures: the same in `run`, `status` and `why`. Pure."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from elasticd.cli.terminal.time_words import shares_line
from elasticd.control.follow import EtcdAway, EtcdBack, JobEnded, Waiting, WorldFormed
from elasticd.control.local_run.last_checkpoint import CheckpointAwaited, CheckpointLost
from elasticd.control.local_run.session import AgentEnded, RunNews, Stopping
from elasticd.control.report.change_report import ChangeReport
from elasticd.control.report.report import JobReport
from elasticd.records.account.progress import RankProgress, newest_checkpoint_age_s
from elasticd.records.failure import Failure
from elasticd.records.job import JobSpec, JobStatus
from elasticd.records.reason import Cause, Phase, Reason

__all__ = ["change_of", "failure_lines", "news_line", "seconds", "standing", "summary_lines"]

BECAUSE: Mapping[Reason, str] = {
    Reason.FIRST_WORLD: "first world",
    Reason.WORKER_FAILED: "a worker failed",
    Reason.WORKER_KILLED: "a worker was killed",
    Reason.WORKER_HUNG: "a worker hung",
    Reason.NO_OUTPUT: "no rank wrote anything for as long as --output-timeout allows",
    Reason.COLLECTIVE_BROKEN: "a collective broke",
    Reason.NODE_LOST: "a node was lost: its lease ran out",
    Reason.NODE_DEAD: "a node died: its connection broke and nobody answers there",
    Reason.CUT_OFF: "a node could not be reached by other nodes",
    Reason.NODE_LEFT: "a node left: its agent said goodbye",
    Reason.NODE_RETURNED: "a node came back before its loss was noticed",
    Reason.DRAINED: "a node is being drained",
    Reason.PREEMPTED: "a node is being preempted",
    Reason.JOINED: "nodes joined",
    Reason.SCALED: "the job was scaled",
    Reason.DID_NOT_ARRIVE: "a node did not start its workers in time",
    Reason.BELOW_MIN: "too few nodes",
    Reason.STOP_REQUESTED: "a stop was asked for",
    Reason.ALL_SUCCEEDED: "all ranks succeeded",
    Reason.BUDGET_SPENT: "the restart budget is spent",
    Reason.REPEATED_ERROR: "the same error came back before any group was formed",
    Reason.ENDS_JOB: "an error that is to end the job",
    Reason.ISOLATED: "a node was cut off from etcd for too long",
    Reason.OTHER: "a reason that a newer version of elasticd has",
}
WORKERS_JOINED = "workers joined"
"""The reason `joined` where no node is new: the processes of slots whose workers were lost."""
CAUSES: Mapping[Cause, str] = {
    Cause.USER_ERROR: "script errors",
    Cause.NODE_LOSS: "losses of nodes or workers",
    Cause.PREEMPTION: "nodes that left",
    Cause.RESIZE: "resizes",
}
TRACEBACK_LINES = 15
FILE = "incidents.jsonl"
"""The file of all incidents in a job's folder (docs/incidents.md)."""
_LONG = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, ""))


def news_line(news: RunNews) -> str:
    match news:
        case WorldFormed(world=world):
            why = change_of(world.reason, world.culprit, tuple(world.lost))
            if world.reason is Reason.JOINED and news.has_no_new_node:
                why = WORKERS_JOINED
            return f"generation {world.generation}: {_size(len(world.nodes), world.size)} ({why})"
        case Waiting(message=message):
            return message
        case EtcdAway(message=message):
            return f"etcd does not answer, the workers go on: {message}"
        case EtcdBack():
            return "etcd answers again"
        case Stopping(signal=name):
            again = "press" if name == "SIGINT" else "send it"
            return f"{name}: stopping the job gracefully; {again} again to kill now"
        case AgentEnded(node=node, ending=how, words=said):
            return f"the agent {node} ended: {how}" + (f"; it said: {said}" if said else "")
        case CheckpointAwaited(done_bytes=done, total_bytes=total):
            far = f": {sizes(done, total)}" if total else ""
            return f"waiting for the last checkpoint{far} (Ctrl-C twice gives it up)"
        case CheckpointLost(is_given_up=True):
            return "the last checkpoint was given up; the one before it counts"
        case CheckpointLost():
            return (
                "the last checkpoint was not saved: agents/*.keeper.log in the run folder says why"
            )
        case JobEnded(status=status):
            return ending(status)


def standing_of(report: JobReport) -> str:
    """Return how a job ended or stands; of one without a world, for what it waits."""
    status = report.status
    if status.phase in (Phase.PENDING, Phase.WAITING):
        status = replace(status, message=report.message)
    return ending(status)


def ending(status: JobStatus) -> str:
    if status.phase is Phase.WAITING:
        return f"job {status.message.replace('waiting for', 'waits for', 1)}"
    if status.phase is Phase.RUNNING and not status.message:
        return f"job running: generation {status.generation}"
    return f"job {status.phase}: {status.message.rstrip('.') or because(status.reason)}"


def because(reason: Reason) -> str:
    return BECAUSE.get(reason, reason.value.replace("_", " "))


def change_of(reason: Reason, culprit: Failure | None, lost: tuple[str, ...]) -> str:
    """Return a sentence about why a world was replaced, and which rank failed first."""
    if culprit is not None:
        text = f"{because(reason)}: {who(culprit)}, {culprit.ending}"
        text = f"{text}, {culprit.exception}" if culprit.exception else text
        text += f": a disk of {culprit.host} is full" if culprit.has_full_disk else ""
        if culprit.in_a_row > 1:
            text = f"{text}, {culprit.in_a_row} times in a row in this slot"
            text += ", which is left out from now on" if culprit.is_last_of_slot else ""
        return (
            f"{text} Stacks: {culprit.log_path}" if culprit.is_hung and culprit.log_path else text
        )
    if lost:
        return f"{because(reason)}: {', '.join(lost)}"
    return because(reason)


def who(failure: Failure) -> str:
    on = failure.host if failure.host == failure.node else f"{failure.host} ({failure.node})"
    return f"rank {failure.rank} on {on}"


def failure_lines(failure: Failure) -> list[str]:
    """Return the lines about a failed rank: its exit, its traceback, and where its output is."""
    lines = [f"last failure: {who(failure)}, generation {failure.generation}: {failure.ending}"]
    if failure.traceback:
        lines += _end_of(failure.traceback.rstrip().splitlines())
    elif failure.exception:
        lines.append(failure.exception)
    if failure.log_path:
        lines.append(f"full log: {failure.log_path}")
    return lines


def _end_of(traceback: Sequence[str]) -> Sequence[str]:
    """Return the last lines of a traceback, from the beginning of a frame on."""
    last = traceback[-TRACEBACK_LINES:]
    if len(last) == len(traceback):
        return last
    begin = next((at for at, line in enumerate(last) if line.startswith("  File ")), 0)
    return ["  ...", *last[begin:]]


def summary_lines(report: JobReport, log_folder: str) -> list[str]:
    """Return the lines of a job's summary."""
    changes = [change for change in report.changes if change.generation > 1]
    sizes = " -> ".join(map(str, report.world_sizes)) or "none"
    lines = [
        ending(report.status),
        f"generations: {report.status.generation}, world sizes: {sizes}",
    ]
    if changes:
        causes = ", ".join(f"{n} x {CAUSES[c]}" for c, n in report.restarts_by_cause.items())
        lost = report.lost_s
        phases = ", ".join(f"{phase} {seconds(value)}" for phase, value in lost.items())
        lines.append(f"changes of world: {len(changes)} ({causes or 'none charged'})")
        lines += unkept_lines(report)
        lines.append(f"time in agreement and start-up: {seconds(sum(lost.values()))} ({phases})")
        lines += uncounted_lines(report)
    lines += training_lines(report)
    if report.time is not None and (shares := shares_line(report.time)):
        lines.append(shares)
    if report.saved is not None:
        lines.append(f"state: {report.saved.sentence}")
    lines.append(f"logs: {log_folder}")
    return lines


def unkept_lines(report: JobReport) -> list[str]:
    """Return a line that says where the first changes of a job are, if etcd no longer has them."""
    if oldest_kept(report) <= 1:
        return []
    return [f"{unkept(report)}: {FILE} in the job's folder on its nodes has them"]


def unkept(report: JobReport) -> str:
    return f"generations 1 to {oldest_kept(report) - 1} are no longer in etcd"


def oldest_kept(report: JobReport) -> int:
    """Return the first generation of which etcd has incidents; 1 if etcd has all, or none yet."""
    return report.changes[0].generation if report.changes else 1


def uncounted_lines(report: JobReport) -> list[str]:
    """Return a line about the time that the phases of all changes do not count."""
    if not report.is_in_process:
        why = "the time until a failure could be noticed"
        if "step" not in report.lost_s:
            why += ", and what the script needs to come back"
        return [f"not in it: {why}"]
    if not report.unnoticed_s:
        return []
    return [f"not in it: {seconds(report.unnoticed_s)} without a step before they were noticed"]


def training_lines(report: JobReport) -> list[str]:
    """Return the counted steps and samples of a run that is over.

    If the script counts nothing, return the last step on record.
    """
    done = report.training
    if done is None:
        is_known = report.status.phase.is_final and report.step
        return [f"last step on record: {report.step}"] if is_known else []
    epochs = f", {counted(done.epochs, 'epoch')}" if done.epochs else ""
    samples = f"{counted(done.samples, 'sample')}, {done.repeated} repeated, {done.skipped} skipped"
    lines = [f"trained: {counted(done.steps, 'step')}{epochs}, {samples}"]
    return [*lines, done.note] if done.note else lines


def progress(change: ChangeReport) -> str:
    """Return the first step of an in-process generation, its repeated steps and its sent bytes."""
    text = f"at step {change.step}, {counted(change.lost_steps, 'step')} done again"
    if change.received_bytes:
        text += f", {size_of(change.received_bytes)} of state sent"
    return f"{text}; {change.note}" if change.note else text


def standing(ranks: Sequence[RankProgress]) -> list[str]:
    """Return the progress of a running job, by the lowest rank that answered."""
    if not ranks:
        return []
    first = ranks[0]
    if first.step is None:
        ago = first.output_ago_s
        wrote = f"last wrote {duration(ago)} ago" if ago is not None else "has written nothing yet"
        return [f"training: steps are not known here; rank {first.rank} {wrote}"]
    text = ", ".join(filter(None, (f"training: {step_of(first)}", epoch_of(first))))
    text += "".join(f", {name} {value:.6g}" for name, value in first.scalars.items())
    if first.step_s > 0.0:
        text += f"; {1.0 / first.step_s:.3g} steps/s"
    if first.committed_ago_s is not None:
        last = "it said so" if first.is_told else "the last commit was"
        text += f"; {last} {seconds(first.committed_ago_s)} ago"
    if first.why_paused:
        text += f"; paused: {first.why_paused}"
    bad = {name: step for rank in reversed(ranks) for name, step in rank.not_finite.items()}
    return [text, *(f"{name} was not finite, first seen at step {at}" for name, at in bad.items())]


def step_of(rank: RankProgress) -> str:
    return f"step {rank.step}/{rank.steps}" if rank.steps else f"step {rank.step}"


def epoch_of(rank: RankProgress) -> str:
    """Return the epoch, counted from 1, and the number of epochs; empty if they are not known."""
    of = f"/{rank.epochs}" if rank.epochs else ""
    return f"epoch {rank.epoch_number}{of}" if rank.epoch_number else ""


def checkpoint_lines(spec: JobSpec, ranks: Sequence[RankProgress]) -> list[str]:
    """Return the age of a running job's newest checkpoint, by the nodes that answered, and whether
    snapshots wait for the next checkpoint.
    """
    if spec.checkpoint is None or not ranks:
        return []
    age_s = newest_checkpoint_age_s(ranks)
    # A keeper knows its own: after a restore on another node the storage has older ones.
    said = (
        "none is durable since rank 0's keeper began; if there are older ones, `elasticd "
        "checkpoint ls` shows them"
    )
    if age_s is not None:
        said = f"the newest is {duration(age_s)} old"
    held_up = (
        "snapshots wait until an upload is done, since a node has no memory for a third buffer: "
        "give it more, or raise --checkpoint-upload-every"
    )
    return [
        f"checkpoint: {said}; {spec.checkpoint.url}",
        *([held_up] if any(rank.is_held_up for rank in ranks) else ()),
    ]


def age_lines(report: JobReport, now_unix_s: float) -> list[str]:
    """Return who submitted a job and when, and its world's age; both by other hosts' clocks."""
    spec, lines = report.spec, []
    if spec.submitted_at_unix_s:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(spec.submitted_at_unix_s))
        by = f" by {spec.submitted_by}" if spec.submitted_by else ""
        ago = duration(now_unix_s - spec.submitted_at_unix_s)
        lines.append(f"submitted{by} at {when}, {ago} ago")
    if report.changes and report.status.phase is Phase.RUNNING:
        up = duration(now_unix_s - report.changes[-1].at_unix_s)
        lines.append(f"up: this world stands for {up}")
    return lines


def duration(value_s: float) -> str:
    """Return a long duration in one or two units, as in "3 h 20 min"; empty if it is negative."""
    whole_s = max(0, int(value_s))
    for unit_s, name, part_s, part in _LONG:
        if whole_s >= unit_s:
            rest = whole_s % unit_s // part_s
            return f"{whole_s // unit_s} {name}" + (f" {rest} {part}" if rest and part else "")
    return f"{whole_s} s"


def change_cost(change: ChangeReport) -> str:
    """Return the cost of a change, from the last commit before it to the first commit after it."""
    found = sorted(change.spent_s.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{cause} {seconds(value)}" for cause, value in found if value)
    return f"cost {seconds(change.slot_s)} of slots: {parts}" if parts else ""


def seconds(value: float) -> str:
    if value >= 100:
        return f"{value:.0f} s"
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1000:.0f} ms"


def timeline(change: ChangeReport) -> str:
    """Return a generation in one line."""
    why = change_of(change.reason, change.culprit, change.lost)
    if change.reason is Reason.JOINED and change.has_no_new_node:
        why = WORKERS_JOINED
    elif change.reason is Reason.JOINED and change.joined:
        why = f"{why}: {', '.join(change.joined)}"
    return f"generation {change.generation}: {_size(change.nodes, change.world_size)} ({why})"


def sizes(done_bytes: int, total_bytes: int) -> str:
    """Return both sizes, as in "done of total", in the unit of the total."""
    unit, _ = _unit(total_bytes)
    return f"{done_bytes / unit:.{unit > 1:d}f} of {size_of(total_bytes)}"


def size_of(nbytes: int) -> str:
    """Return a size in bytes with two or more digits, in a fitting unit."""
    unit, name = _unit(nbytes)
    return f"{nbytes / unit:.{unit > 1:d}f} {name}"


def _unit(nbytes: int) -> tuple[int, str]:
    units = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
    return next((each for each in units if nbytes >= each[0]), (1, "bytes"))


def _size(nodes: int, workers: int) -> str:
    return f"{counted(nodes, 'node')}, {counted(workers, 'worker')}"


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def is_failed(status: JobStatus) -> bool:
    return status.phase is Phase.FAILED
