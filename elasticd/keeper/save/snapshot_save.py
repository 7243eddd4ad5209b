"""One snapshot that a keeper saves: its stage, and its outcome."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from elasticd.checkpoint.commit.committer import CommitOutcome
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Fragment
from elasticd.transitions import Transitions

__all__ = ["SAVE_STAGES", "SaveStage", "SnapshotSave", "is_save_under_way"]


class SaveStage(StrEnum):
    WAITING = "waiting"
    UPLOADING = "uploading"
    COMMITTED = "committed"
    ALREADY = "already"
    TOO_LATE = "too_late"


SAVE_STAGES = Transitions(
    of="A snapshot that a keeper saves",
    meanings={
        SaveStage.WAITING: "Nothing is left to upload here: the keeper waits for the shares of "
        "other nodes, or for its turn to commit.",
        SaveStage.UPLOADING: "A share goes from this node's memory to the storage.",
        SaveStage.COMMITTED: "This keeper has committed the checkpoint.",
        SaveStage.ALREADY: "Another keeper has committed it.",
        SaveStage.TOO_LATE: "It will never be a checkpoint: a newer one or a newer generation came "
        "before it, or it could not be saved.",
    },
    begins={SaveStage.WAITING: "A worker has completed its share in memory."},
    ways={
        (SaveStage.WAITING, SaveStage.UPLOADING): "A share is here of which this node is the first "
        "holder; or the first holder has not uploaded its own in time.",
        (SaveStage.UPLOADING, SaveStage.WAITING): "The share is in the storage.",
        (SaveStage.WAITING, SaveStage.COMMITTED): "All fragments are in the storage, and the log "
        "took the entry.",
        (SaveStage.WAITING, SaveStage.ALREADY): "The log has an entry for it.",
        (
            SaveStage.WAITING,
            SaveStage.TOO_LATE,
        ): "The log has a newer entry; or a share never came; "
        "or the storage refused; or the keeper ends.",
        (
            SaveStage.UPLOADING,
            SaveStage.TOO_LATE,
        ): "The upload failed, or its memory was needed for a newer snapshot.",
    },
    ends={
        SaveStage.COMMITTED: "The keeper forgets all but the last eight.",
        SaveStage.ALREADY: "The keeper forgets all but the last eight.",
        SaveStage.TOO_LATE: "The keeper forgets all but the last eight.",
    },
)


@dataclass(slots=True, eq=False, kw_only=True)
class SnapshotSave:
    """A snapshot that is being saved."""

    snapshot: Snapshot
    shares: int
    begun_s: float
    uploaded_s: float
    """When nothing was left to upload here."""
    own: dict[int, Fragment] = field(default_factory=dict)
    stage: SaveStage = SaveStage.WAITING
    why: str = ""
    is_on_one_node: bool = False
    """True if no other keeper gets a share of it."""
    is_lost: bool = False
    """True if it is certain that a share of it never comes."""
    is_abandoned: bool = False
    """True if the training goes on from an earlier step, so that it may never become durable."""
    looks: int = 0
    """How often the storage was asked whether other nodes have lost a share."""
    look_due_s: float = 0.0
    missing_s: float | None = None
    """Since when nothing is left to do here, but a share of others is missing."""

    def abandon(self, generation: int, step: int) -> bool:
        """Give it up if this generation, a later one, began before its step; return whether it did.

        The log would refuse it when it is uploaded, and until then no other could be saved.
        """
        made = self.snapshot
        if self.outcome is not None or made.generation >= generation or made.step <= step:
            return False
        self.is_abandoned = True
        self.why = f"It was not durable in time, so the training goes on from step {step}."
        return True

    def enter(self, stage: SaveStage) -> None:
        """Go on to this stage.

        Raises:
            InvariantBroken: this stage does not follow the one before.
        """
        self.stage = SAVE_STAGES.step(self.stage, stage)

    @property
    def outcome(self) -> CommitOutcome | None:
        """Return how the save ended; None while the snapshot is being saved."""
        return CommitOutcome(self.stage) if self.stage in SAVE_STAGES.ends else None

    @property
    def took_s(self) -> float:
        return self.uploaded_s - self.begun_s

    def is_missing(self, now_s: float, least_s: float) -> bool:
        """Return whether other nodes take longer than `least_s`, and much longer than this node
        took.
        """
        if self.missing_s is None:
            return False
        return now_s - self.missing_s > max(least_s, 2 * self.took_s)

    @property
    def incomplete(self) -> str:
        """Return the sentence on a part that has not come for long."""
        return (
            f"The checkpoint of step {self.snapshot.step} is not whole long after this node's part "
            "of it was saved: a rank did not call save for this step, or is slow or gone."
        )


def is_save_under_way(
    jobs: Iterable[SnapshotSave], generation: int, now_s: float, stuck_s: float
) -> bool:
    """Return whether the next snapshot has to wait, by those that are being saved. Pure.

    A part that is missing when its generation is over is probably lost with its worker. The loss is
    not certain: another keeper may be slow to upload the part. So the snapshot is not given up, and
    it delays no newer one, as long as it is the only one of that kind. The same is true of a part
    of the present generation that is missing for `stuck_s`. There, the third snapshot would be
    written over the first, which the other keeper perhaps still uploads; and so would each after
    it, so that none ever became durable.
    """
    being_saved = [job for job in jobs if job.outcome is None and not job.is_abandoned]
    stuck = [job for job in being_saved if job.is_missing(now_s, stuck_s)]
    if sum(job.snapshot.generation >= generation for job in stuck) > 1:
        return True
    waiting = [job for job in being_saved if job not in stuck]
    if len(waiting) != 1:
        return bool(waiting)
    (job,) = waiting
    return job.missing_s is None or job.snapshot.generation >= generation
