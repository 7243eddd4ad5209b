"""A worker as a process of this node, and the account of its end."""

from dataclasses import dataclass, replace
from pathlib import Path

from elasticd.records.account.progress import RankProgress
from elasticd.records.failure import Failure, signal_name
from elasticd.records.ids import Generation, Incarnation, NodeId, Nonce, Rank, Slot
from elasticd_agent.liveness.progress_answer import RankState
from elasticd_agent.liveness.stack_dump import SuspectWorker
from elasticd_agent.worker_setup.worker_env import WorkerFiles
from elasticd_agent.workers.attached_workers import WorkerProgress
from elasticd_agent.workers.exit_report import ExitReport, is_echo

__all__ = [
    "Home",
    "WorkerProcess",
    "failure_of",
    "hang_of",
    "rank_state",
    "pool_failure",
    "standing_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The node and the incarnation for which a job's workers run here."""

    node: NodeId
    incarnation: Incarnation
    host: str


@dataclass(slots=True, kw_only=True)
class WorkerProcess:
    """A worker as a process of this node. Its place in the world changes, the process does not."""

    slot: Slot
    nonce: Nonce
    files: WorkerFiles
    generation: Generation = Generation(0)
    rank: Rank = Rank(0)
    local_rank: int = 0
    pid: int | None = None
    is_examined: bool = False
    """True if it hangs and its stacks are being written."""
    is_stop_due: bool = False
    """True if it is to be killed after that."""
    stop_grace_s: float = 0.0
    """The time from SIGTERM to SIGKILL, for a worker that was silent and may still be well."""
    is_silent: bool = False
    """True if it is examined because no rank of its job writes anything (restart mode)."""

    failure: Failure | None = None
    """The failure, where it was told before the process was reaped."""

    @property
    def is_winding_down(self) -> bool:
        """Return whether it raised an error of its own and is on its way to the end."""
        failure = self.failure
        return failure is not None and not failure.signal and not failure.is_secondary

    def is_in(self, slot: Slot, nonce: Nonce) -> bool:
        return (self.slot, self.nonce) == (slot, nonce)


def failure_of(
    home: Home,
    process: WorkerProcess,
    code: int,
    report: ExitReport,
    progress: WorkerProgress | None,
) -> Failure:
    """Return how the worker ended, with the worker's own report."""
    return Failure(
        node=home.node,
        incarnation=home.incarnation,
        host=home.host,
        generation=process.generation,
        rank=process.rank,
        local_rank=process.local_rank,
        slot=process.slot,
        nonce=process.nonce,
        exit_code=code if code >= 0 else None,
        signal=signal_name(code),
        exception=report.exception,
        where=report.where,
        traceback=report.traceback,
        log_path=str(process.files.err),
        is_secondary=is_echo(report) and code not in (-9, -15),
        has_group=report.has_group,
        ends_job=report.ends_job,
        has_lost_state=report.has_lost_state,
        step=progress.step if progress is not None else None,
    )


def rank_state(
    process: WorkerProcess,
    progress: WorkerProgress | None,
    now_s: float,
    keeper_metrics: Path | None = None,
) -> RankState:
    """Return where it stands in its world, for people; `progress` is None if it
    reported nothing.
    """
    rank_progress = RankProgress(
        rank=process.rank, generation=process.generation, pid=process.pid or 0
    )
    if progress is not None:
        at_s = progress.committed_at_s
        rank_progress = replace(
            rank_progress,
            step=progress.step,
            is_told=progress.is_told,
            epoch=progress.epoch,
            epochs=progress.epochs,
            steps=progress.steps,
            consumed=progress.consumed,
            epoch_samples=progress.epoch_samples,
            step_s=progress.step_s,
            committed_ago_s=now_s - at_s if at_s is not None else None,
            why_paused=progress.why_paused,
            scalars=progress.scalars,
            not_finite=progress.not_finite,
        )
    return RankState(
        progress=rank_progress,
        outputs=(process.files.out, process.files.err),
        keeper_metrics=keeper_metrics,
    )


def hang_of(failure: Failure, why: str, stacks: Path) -> Failure:
    """Return the failure of a worker that we end because it hangs; what it raised before does not
    matter.
    """
    return replace(
        failure,
        is_hung=True,
        is_secondary=False,
        exception=why,
        traceback="",
        log_path=str(stacks),
    )


def standing_of(process: WorkerProcess, *, note: str, is_frozen: bool) -> SuspectWorker:
    """Return whose stacks are wanted, and why it is suspected, if it is."""
    assert process.pid is not None
    return SuspectWorker(pid=process.pid, rank=process.rank, is_frozen=is_frozen, note=note)


def pool_failure(home: Home, why: str) -> Failure:
    """Return the failure that says that no worker can be started on this node at all."""
    return Failure(
        node=home.node,
        incarnation=home.incarnation,
        host=home.host,
        generation=Generation(0),
        rank=Rank(0),
        local_rank=0,
        slot=Slot(0),
        nonce=Nonce(0),
        exception=why,
    )
