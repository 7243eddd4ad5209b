"""Makes a checkpoint count: all fragments together, the manifest, and one entry in the log.

Any keeper may commit a snapshot whose fragments are all there, even several keepers at once: the
manifest is created once, the log takes one entry for it, and nothing depends on who was first.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from elasticd.checkpoint.commit.fail_point import fail_point
from elasticd.checkpoint.commit.log import CommitLog, LogState, is_committed, may_commit
from elasticd.checkpoint.format.checksum import text_sum
from elasticd.checkpoint.format.entry import FORMER_LIMIT, LogEntry, LogEntryKind
from elasticd.checkpoint.format.json_read import Damaged, retry_damaged
from elasticd.checkpoint.format.layout import Snapshot, fragment_name
from elasticd.checkpoint.format.manifest import TEXT_LIMIT_BYTES, Fragment, Manifest, merged
from elasticd.checkpoint.format.number_ranges import NumberRanges
from elasticd.checkpoint.storage.bucket import Bucket, ObjectMissing, ReadableBucket
from elasticd.errors import Fenced, Refused

__all__ = ["Committer", "CommitOutcome", "fragment_of", "read_manifest", "refusal_of_owner"]

HOLDERS = 2


class CommitOutcome(StrEnum):
    COMMITTED = "committed"
    ALREADY = "already"
    """Another keeper committed it."""
    TOO_LATE = "too_late"
    """A newer generation rules, or a newer checkpoint is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """Makes the checkpoints of one job count: it appends them to the commit log."""

    bucket: Bucket
    log: CommitLog
    uid: str
    job: str
    """The job whose checkpoints these are; the same over all its runs."""

    def open(self, generation: int, step: int, origin: int | None = None) -> int:
        """Write down that a generation began at this step; return the run it belongs to.

        `origin` is the number of the checkpoint that it went on from, where ranks ask for it; 0 if
        it began anew.

        Raises:
            Refused: the URL holds the checkpoints of another job.
            Fenced: a later run or generation was opened before.
        """
        run = 0

        def make(number: int, log_state: LogState, kept: Sequence[int]) -> LogEntry | None:
            nonlocal run
            self.check_owner(log_state)
            if log_state.uid == self.uid and log_state.generation >= generation:
                run = log_state.run
                if log_state.generation > generation:
                    raise Fenced(
                        f"Generation {log_state.generation} was opened before {generation}."
                    )
                return None
            if self.uid in log_state.former:
                raise Fenced(f"A later run of {log_state.job} has begun to write to the same URL.")
            is_same = log_state.uid == self.uid
            if not is_same and run:
                raise Fenced("Another run has begun to write to the same URL.")
            run = log_state.run if is_same else log_state.run + 1
            former = (
                log_state.former
                if is_same or not log_state.uid
                else (*log_state.former, log_state.uid)
            )
            return LogEntry(
                number=number,
                kind=LogEntryKind.OPENED,
                snapshot=Snapshot(run=run, generation=generation, step=step),
                uid=self.uid,
                job=self.job,
                kept=kept,
                at_unix_s=time.time(),
                former=former[-FORMER_LIMIT:],
                origin=origin,
            )

        self.log.append(make)
        return run

    def check_owner(self, log_state: LogState) -> None:
        """Raise Refused if the log is another job's."""
        if log_state.job and log_state.job != self.job:
            raise Refused(refusal_of_owner(self.bucket.url, log_state.job, self.job))

    def commit(self, manifest: Manifest) -> CommitOutcome:
        """Make a checkpoint of a snapshot whose parts and fragments are durable.

        Raises: Damaged: nobody could read it, or there is another, unreadable manifest under its
            name.
        """
        snapshot = manifest.header.snapshot
        text = manifest.to_json()
        Manifest.from_json(text)  # Beyond the limits of a reader it must not count.
        if not self.bucket.create(snapshot.manifest, text):
            # From another holder's fragments, perhaps; equally good if it is whole.
            manifest, text = retry_damaged(lambda: _standing(self.bucket, snapshot))
            if manifest.header.uid != self.uid:
                return CommitOutcome.TOO_LATE
        fail_point("commit.manifest")
        outcome = CommitOutcome.COMMITTED

        def make(number: int, log_state: LogState, kept: Sequence[int]) -> LogEntry | None:
            nonlocal outcome
            self.check_owner(log_state)
            if self.is_committed(log_state, snapshot):
                outcome = CommitOutcome.ALREADY
                return None
            if not self.may_commit(log_state, snapshot):
                outcome = CommitOutcome.TOO_LATE
                return None
            return LogEntry(
                number=number,
                kind=LogEntryKind.COMMITTED,
                snapshot=snapshot,
                uid=self.uid,
                job=self.job,
                kept=NumberRanges(kept).plus(number),
                manifest_sum=text_sum(text),
                nbytes=manifest.nbytes,
                at_unix_s=time.time(),
            )

        self.log.append(make)
        return outcome

    def may_commit(self, log_state: LogState, snapshot: Snapshot) -> bool:
        """Return True if this run's snapshot may become the newest checkpoint.

        Two runs can have the same number where a storage lets two writers create one object. Then
        the run whose entry is in the log goes on.
        """
        is_ours = log_state.run != snapshot.run or log_state.uid == self.uid
        return is_ours and may_commit(log_state, snapshot)

    def is_committed(self, log_state: LogState, snapshot: Snapshot) -> bool:
        """Return True if the newest checkpoint is this snapshot, or ours of the same state."""
        is_ours = log_state.last == snapshot or log_state.uid == self.uid
        return is_ours and is_committed(log_state, snapshot)

    def fragment(self, snapshot: Snapshot, share: int) -> Fragment | None:
        """Return this run's fragment of a share, from any holder that wrote it; None if no holder
        did.
        """
        return fragment_of(self.bucket, snapshot, share, self.uid)

    def gather(self, snapshot: Snapshot, shares: int, own: Iterable[Fragment]) -> Manifest | None:
        """Put the manifest together; return None as long as a share is missing.

        `own` are the fragments that this keeper wrote, so it need not read them.
        """
        known = {fragment.share: fragment for fragment in own}
        found = []
        for share in range(shares):
            fragment = known.get(share) or self.fragment(snapshot, share)
            if fragment is None:
                return None
            found.append(fragment)
        return merged(found)


def refusal_of_owner(url: str, owner: str, job: str) -> str:
    """Return the sentence for a job that would write to another's URL."""
    return (
        f"{url} holds the checkpoints of the job {owner}, not of {job}: give another URL, or the "
        "same --job to go on from them."
    )


def fragment_of(
    bucket: ReadableBucket, snapshot: Snapshot, share: int, uid: str
) -> Fragment | None:
    """Return a share's fragment, from any holder of this run that wrote it; None if none did."""
    for holder in range(HOLDERS):
        name = fragment_name(snapshot, share, holder)
        try:
            found = retry_damaged(lambda: Fragment.from_json(bucket.read(name, TEXT_LIMIT_BYTES)))  # noqa: B023
        except (ObjectMissing, Damaged):
            continue
        if (found.snapshot, found.share, found.uid) == (snapshot, share, uid):
            return found
    return None


def read_manifest(bucket: ReadableBucket, entry: LogEntry) -> Manifest:
    """Read the manifest that an entry names.

    Raises: Damaged: the text is not what was committed.
    """

    def once() -> Manifest:
        manifest, text = _standing(bucket, entry.snapshot)
        if text_sum(text) != entry.manifest_sum:
            raise Damaged(f"The manifest of {entry.snapshot} is not the one that was committed.")
        if manifest.header.uid != entry.uid:
            raise Damaged(f"The manifest of {entry.snapshot} is of another run.")
        return manifest

    return retry_damaged(once)


def _standing(bucket: ReadableBucket, snapshot: Snapshot) -> tuple[Manifest, bytes]:
    try:
        text = bucket.read(snapshot.manifest, TEXT_LIMIT_BYTES)
    except ObjectMissing as exc:
        raise Damaged(f"The manifest of {snapshot} is gone.") from exc
    try:
        manifest = Manifest.from_json(text)
    except Damaged as exc:
        raise Damaged(f"The manifest of {snapshot} cannot be used. {exc}") from exc
    if manifest.header.snapshot != snapshot:
        raise Damaged(f"The manifest of {snapshot} is another's.")
    return manifest, text
