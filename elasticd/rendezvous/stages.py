"""Which stages a node's part in a job and a worker go through: the tables, and the only two
functions that change a stage.
"""

import dataclasses

from elasticd.rendezvous.state import JobState, Stage, Worker, WorkerStage, replace
from elasticd.transitions import Transitions

__all__ = ["MEMBER_STAGES", "WORKER_STAGES", "with_stage", "with_worker_stage"]

MEMBER_STAGES = Transitions(
    of="A node's part in a job",
    meanings={
        Stage.MEMBER: "The node takes part: it has a record, and worlds may name it.",
        Stage.LEAVING: "The node was asked to go. It stops its workers once no world needs them.",
        Stage.WITHDRAWING: "No worker is left, and the goodbye is being written to etcd.",
        Stage.VOID: "The lease is over. The node writes nothing any more and stops its workers, or "
        "leads them out of their world.",
        Stage.RETIRED: "This incarnation has ended. Another one may follow.",
    },
    begins={Stage.MEMBER: "The agent gave slots to the job."},
    ways={
        (Stage.MEMBER, Stage.LEAVING): "The agent was asked to leave the job: a drain, a signal, "
        "an operator.",
        (Stage.MEMBER, Stage.WITHDRAWING): "The job is over, or the world has shut this node out, "
        "and no worker is left.",
        (Stage.LEAVING, Stage.WITHDRAWING): "No worker is left, and no world counts on this node.",
        (Stage.WITHDRAWING, Stage.MEMBER): "The goodbye could not be written, and nobody asked the "
        "node to leave: it is tried again.",
        (Stage.WITHDRAWING, Stage.LEAVING): "The goodbye could not be written: it is tried again.",
        (Stage.MEMBER, Stage.VOID): "The lease has ended.",
        (Stage.LEAVING, Stage.VOID): "The lease has ended.",
        (Stage.WITHDRAWING, Stage.VOID): "The lease has ended.",
        (Stage.MEMBER, Stage.RETIRED): "There is nothing to say goodbye to: the job's records are "
        "gone, or the job is over while the lease is in doubt.",
        (Stage.LEAVING, Stage.RETIRED): "As from member; or the lease is in doubt, so nothing may "
        "be written.",
        (Stage.WITHDRAWING, Stage.RETIRED): "The goodbye has been written.",
        (Stage.VOID, Stage.RETIRED): "No worker is left in a world.",
    },
    ends={Stage.RETIRED: "The agent lets go of the job, or joins it as a new incarnation."},
)

WORKER_STAGES = Transitions(
    of="A worker",
    meanings={
        WorkerStage.STARTING: "The pool was ordered to start the process.",
        WorkerStage.RUNNING: "The process runs, whether or not it is in a world.",
        WorkerStage.FAILED: "The process is known to be lost, and not reaped yet.",
    },
    begins={
        WorkerStage.STARTING: "The agent decided to start it.",
        WorkerStage.RUNNING: "It is a worker of this node's incarnation before, and goes on.",
    },
    ways={
        (WorkerStage.STARTING, WorkerStage.RUNNING): "The process was started, or it has called "
        "`elasticd.run`.",
        (
            WorkerStage.STARTING,
            WorkerStage.FAILED,
        ): "It reported an error, was found to hang, or a signal kills it.",
        (
            WorkerStage.RUNNING,
            WorkerStage.FAILED,
        ): "It reported an error, was found to hang, or a signal kills it.",
    },
    ends={
        WorkerStage.STARTING: "It could not be started, or was stopped before it ran.",
        WorkerStage.RUNNING: "The process has exited, with whatever code.",
        WorkerStage.FAILED: "The process has exited.",
    },
)


def with_stage(state: JobState, stage: Stage) -> JobState:
    """Return the state with this node's part at another stage.

    Raises:
        InvariantBroken: the stage does not follow the one before.
    """
    return replace(state, stage=MEMBER_STAGES.step(state.stage, stage))


def with_worker_stage(worker: Worker, stage: WorkerStage) -> Worker:
    """Return the worker at another stage.

    Raises:
        InvariantBroken: the stage does not follow the one before.
    """
    return dataclasses.replace(worker, stage=WORKER_STAGES.step(worker.stage, stage))
