"""Saves snapshots: uploads shares held here, commits complete snapshots, in the keeper's threads.

Each keeper uploads the shares of which it is the first holder. The one with share 0 commits as soon
as all fragments are there; if it is gone, the next in line does. If a first holder did not upload
its share, the second does. All that keepers must know of each other for this stands in the bucket,
so no connection between them can break. (The sending of a second copy may break; then a share has
one holder.)
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition, Thread

from elasticd.checkpoint.commit.committer import CommitOutcome, Committer
from elasticd.checkpoint.commit.fail_point import fail_point
from elasticd.checkpoint.commit.fetch import read_back
from elasticd.checkpoint.commit.share_loss import is_lost
from elasticd.checkpoint.commit.upload import Abandoned
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Manifest
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.errors import ElasticdError, Refused
from elasticd.keeper.memory.share_memory import ShareMemory
from elasticd.keeper.memory.share_record import ShareRecord
from elasticd.keeper.metrics import Metrics
from elasticd.keeper.save.claimed_shares import ClaimedShares
from elasticd.keeper.save.share_uploader import ShareUploader
from elasticd.keeper.save.snapshot_save import SaveStage, SnapshotSave, is_save_under_way
from elasticd.telemetry.log import get_logger

__all__ = ["Saver"]

TURN_S = 5.0
"""How much later than the one before each keeper tries the commit itself."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 2.0
STUCK_S = 30.0
"""A share that is missing for so long is probably lost."""
LOST_S = 60.0
"""A share that is missing for so long after the job's end will not come."""
GIVE_UP_S = 900.0
"""A snapshot of which something is missing for so long will never be complete."""
LOOK_S = 0.1
"""How often to look, for who waits, whether the last connection of a worker is at its end."""
LOOK_OTHERS_S = 1.0
"""How often to ask the storage meanwhile what other nodes have lost."""
LOOK_SHARES = 64
"""About how many shares it is asked at a time: each takes a request."""

log = get_logger()


class Saver:
    """The one saver of a keeper; any thread may call methods without an underscore."""

    def __init__(
        self,
        bucket: Bucket,
        committer: Committer,
        share_memory: ShareMemory,
        *,
        parallel: int,
        niceness: int = 0,
        committed: Callable[[], None] = lambda: None,
        metrics: Metrics | None = None,
    ) -> None:
        """`niceness` is that of the threads that upload, added to the process's.

        `committed` is called after each commit of this keeper, and must return at once.
        """
        self._bucket, self._committer, self._share_memory = bucket, committer, share_memory
        self._uploader = ShareUploader(bucket, committer, share_memory, parallel=parallel)
        self.claims = ClaimedShares(bucket, committer.uid, share_memory)
        self._niceness = niceness
        self._committed = committed
        self._metrics = metrics or Metrics(committer.job, "")
        self._changed = Condition()
        self._jobs: dict[Snapshot, SnapshotSave] = {}
        self._to_open: list[tuple[int, int, int | None]] = []
        self._run = self._generation = 0
        self._durable: Snapshot | None = None
        self._has_read_back = False
        self._notes: list[str] = []
        self._is_closing = False

    # --- for the connections' threads -----------------------------------------------------------

    def open(self, generation: int, step: int, run: int, origin: int | None = None) -> int:
        """Have a generation's beginning written into the log; return the run, 0 if it is not known
        yet.
        """
        with self._changed:
            self._generation = max(self._generation, generation)
            for job in list(self._jobs.values()):
                if job.abandon(generation, step) and not job.is_lost:
                    self._note_failed(job)
            self._run = run or self._run
            if self._run:
                self._to_open.append((generation, step, origin))
                with suppress(RuntimeError):  # No thread can be had: the next save writes it.
                    Thread(target=self._open_all, name="opener", daemon=True).start()
            return self._run

    def use_run(self, run: int) -> None:
        """Use this run, now that it is known."""
        with self._changed:
            self._run = run

    def add(self, record: ShareRecord) -> None:
        """Begin to save a share that is complete in memory."""
        share = record.share
        with self._changed:
            job = self._jobs.get(share.snapshot)
            if job is not None:
                record.is_finished = job.outcome is not None
                return
            now_s = time.monotonic()
            job = SnapshotSave(
                snapshot=share.snapshot,
                shares=share.shares,
                begun_s=now_s,
                uploaded_s=now_s,
                is_on_one_node=record.is_on_one_node,
            )
            name = f"save-{share.snapshot.step}"
            Thread(target=self._save, args=(job,), name=name, daemon=True).start()
            # If no thread can be had, no save is under way for which later ones would wait.
            self._jobs[share.snapshot] = job

    @property
    def is_busy(self) -> bool:
        """Return whether a snapshot is being saved, unless a lost part keeps it from ending."""
        with self._changed:
            jobs = self._jobs.values()
            return is_save_under_way(jobs, self._generation, time.monotonic(), STUCK_S)

    @property
    def durable_step(self) -> int:
        """Return the step of the newest checkpoint that this keeper helped save; -1 if none."""
        durable = self._durable
        return durable.step if durable is not None else -1

    def take_notes(self) -> tuple[str, ...]:
        with self._changed:
            notes, self._notes = tuple(self._notes), []
        return notes

    def wait(self, snapshot: Snapshot, timeout_s: float) -> SnapshotSave | None:
        """Wait until a snapshot is durable or given up; None if time ran out, or it is not known
        here.
        """
        with self._changed:
            job = self._jobs.get(snapshot)
            if job is None:
                return None
            self._changed.wait_for(lambda: job.outcome is not None or job.why, timeout_s)
            return job if job.outcome is not None or job.why else None

    def is_known(self, snapshot: Snapshot) -> bool:
        """Return whether the snapshot was added here, and not long ago."""
        with self._changed:
            return snapshot in self._jobs

    def wait_idle(self, timeout_s: float, generation: int = 0) -> None:
        """Wait until nothing is being saved, or only what can never be whole.

        `generation` is that of who waits, if this node's processes of earlier ones have ended.
        """
        deadline_s = time.monotonic() + timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            self.claims.tell_lost(generation)
            with self._changed:
                waiting = [job for job in self._jobs.values() if job.outcome is None]
            if all(self._is_lost(job, generation) for job in waiting):
                return
            with self._changed:
                self._changed.wait(min(LOOK_S, left_s))

    @property
    def progress(self) -> tuple[int, int]:
        """Return the uploaded bytes and all bytes of the uploads here that are not durable yet."""
        with self._changed:
            waiting = [job for job in self._jobs.values() if job.outcome is None]
            held = [record for job in waiting for record in self._uploader.held(job)]
            records = [record for record in held if record.share.holder == 0]
            return sum(r.uploaded_bytes for r in records), sum(r.memory.size for r in records)

    def close(self, timeout_s: float) -> bool:
        """Finish the saves under way; return True if none was given up within the limit.

        A snapshot that lacks only other nodes' parts is waited for a minute: the nodes may be gone.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while (now_s := time.monotonic()) < deadline_s and any(
                job.outcome is None and not job.is_missing(now_s, LOST_S)
                for job in self._jobs.values()
            ):
                self._changed.wait(min(1.0, deadline_s - now_s))
            last = next(reversed(self._jobs.values()), None)
            is_saved = last is None or last.outcome in (
                CommitOutcome.COMMITTED,
                CommitOutcome.ALREADY,
            )
            self._is_closing = True
            self._changed.notify_all()
        self._uploader.close()
        self._metrics.write()
        return is_saved

    # --- threads of ours ------------------------------------------------------------------------

    def _open_all(self) -> None:
        with self._changed:
            waiting, self._to_open = self._to_open, []
        for generation, step, origin in waiting[-1:]:
            try:
                self._committer.open(generation, step, origin)
            except ElasticdError as exc:
                # A newer one was opened meanwhile, or the next commit meets the same trouble.
                log.warning("generation.not_opened", generation=generation, why=str(exc))

    def _save(self, job: SnapshotSave) -> None:
        os.nice(self._niceness)  # On Linux: of this thread, and of those that it starts.
        try:
            self._commit_when_complete(job)
        except Abandoned:
            job.why = job.why or "A newer snapshot took its place before it was saved."
        except Refused as exc:
            job.why = str(exc)
            self.note(str(exc))
        except ElasticdError as exc:
            job.why = str(exc)
            self._note_failed(job)
        except Exception as exc:
            log.exception("checkpoint.save_broke", step=job.snapshot.step)
            job.why = f"{type(exc).__name__}: {exc}"
            self._note_failed(job)
        with self._changed:
            if job.outcome is None:
                job.enter(SaveStage.TOO_LATE)
                self._metrics.failed()
                log.warning("checkpoint.given_up", step=job.snapshot.step, why=job.why)
            self._share_memory.finish(job.snapshot)
            for old in [s for s, j in self._jobs.items() if j.outcome is not None][:-8]:
                del self._jobs[old]
            self._changed.notify_all()

    def _commit_when_complete(self, job: SnapshotSave) -> None:
        """Wait for the other shares and commit, or see that another keeper has committed."""
        pause_s = FIRST_PAUSE_S
        while not self._is_closing and not job.is_abandoned:
            self._uploader.upload_own(job)  # Another worker of this node may be later.
            waited_s = time.monotonic() - job.uploaded_s
            first = min(job.own, default=job.shares)
            turn = 0 if first == 0 else 1 + first % 16
            # The first holder may take as long as this node did.
            if waited_s >= max(1, turn) * TURN_S + job.took_s:
                self._uploader.upload_second_copies(job)
            if waited_s >= turn * TURN_S:
                if self._try_commit(job):
                    return
            elif self._is_finished(job):
                return
            now_s = time.monotonic()
            if job.missing_s is None:
                job.missing_s = now_s
            if job.is_missing(now_s, GIVE_UP_S):
                job.why = "A part of it never came."
                self._note_failed(job)
                return
            if job.is_missing(now_s, STUCK_S) and job.snapshot.generation >= self._generation:
                self.note(job.incomplete)
            with self._changed:
                self._changed.wait(pause_s)
            pause_s = min(LAST_PAUSE_S, pause_s * 1.5)

    def _try_commit(self, job: SnapshotSave) -> bool:
        self._open_all()
        manifest = self._committer.gather(job.snapshot, job.shares, job.own.values())
        if manifest is None:
            return self._is_finished(job)
        job.missing_s = None
        fail_point("commit.gathered")
        self._read_back(manifest)
        took_s = time.monotonic() - job.begun_s
        outcome = self._committer.commit(manifest)
        fail_point("commit.entry")
        self._end(job, outcome)
        if outcome is CommitOutcome.COMMITTED:
            self._metrics.saved(manifest.nbytes, took_s)
            log.info(
                "checkpoint.committed",
                step=job.snapshot.step,
                generation=job.snapshot.generation,
                size_bytes=manifest.nbytes,
                seconds=round(took_s, 3),
            )
            self._committed()
        return True

    def _read_back(self, manifest: Manifest) -> None:
        """Raise Refused if the written parts cannot be read; only the first save is checked."""
        if self._has_read_back:
            return
        try:
            read_back(self._bucket, manifest)
        except Damaged as exc:
            raise Refused(
                f"The data written to {self._bucket.url} cannot be read back ({exc}), so no "
                "checkpoint there counts as durable: give another --checkpoint."
            ) from exc
        self._has_read_back = True

    def _is_finished(self, job: SnapshotSave) -> bool:
        """Return whether a keeper committed this snapshot, or none may commit it any more."""
        log_state = self._committer.log.state()
        if self._committer.may_commit(log_state, job.snapshot):
            return False
        is_it = self._committer.is_committed(log_state, job.snapshot)
        self._end(job, CommitOutcome.ALREADY if is_it else CommitOutcome.TOO_LATE)
        if log_state.last is not None:
            self._share_memory.forget_before(log_state.last)
        return True

    def _is_lost(self, job: SnapshotSave, generation: int) -> bool:
        """Return whether a share of it was lost for certain, with a process that has ended.

        It was if all ranks were here, all of them have ended, and the share is neither here nor in
        the storage, where a keeper before this one may have left it. Of several nodes their keepers
        say in the storage what was lost (`ShareLoss`).
        """
        if job.is_lost or job.snapshot.generation >= generation:
            return job.is_lost
        missing = sorted(self._share_memory.missing(job.snapshot, job.shares) - set(job.own))
        with suppress(ElasticdError):  # What the storage does not say is not certain.
            if job.is_on_one_node:
                job.is_lost = any(
                    self._committer.fragment(job.snapshot, share) is None for share in missing
                )
            else:
                job.is_lost = self._is_told_lost(job, missing)
        if job.is_lost:
            job.why = "A process ended before its part was whole."
            self._note_failed(job)
        return job.is_lost

    def _is_told_lost(self, job: SnapshotSave, missing: Sequence[int]) -> bool:
        """Ask the storage, from time to time and about some shares at a time."""
        now_s = time.monotonic()
        if now_s < job.look_due_s or not missing:
            return False
        first = job.looks * LOOK_SHARES % len(missing)
        job.looks, job.look_due_s = job.looks + 1, now_s + LOOK_OTHERS_S
        some = (*missing[first:], *missing[:first])[:LOOK_SHARES]
        return any(is_lost(self._bucket, job.snapshot, n, self._committer.uid) for n in some)

    def _end(self, job: SnapshotSave, outcome: CommitOutcome) -> None:
        if outcome is CommitOutcome.TOO_LATE:
            self._note_other_run()  # It asks the storage, and whoever asks us waits for the lock.
        with self._changed:
            job.enter(SaveStage(outcome))
            if outcome is CommitOutcome.TOO_LATE:
                job.why = "A newer checkpoint or generation came before it."
            else:
                self._durable = job.snapshot
                self._metrics.durable(job.snapshot.step)
                self._share_memory.forget_before(job.snapshot)
            self._changed.notify_all()

    def _note_failed(self, job: SnapshotSave) -> None:
        self.note(f"The checkpoint of step {job.snapshot.step} could not be saved: {job.why}")

    def _note_other_run(self) -> None:
        """Report if another run of the job now saves to this URL."""
        log_state = self._committer.log.state()
        if log_state.uid and log_state.uid != self._committer.uid:
            self.note(
                f"Another run of {log_state.job} saves to {self._bucket.url} now, and nothing of "
                "this one is saved any more: stop one of the two."
            )

    def note(self, sentence: str) -> None:
        """Report this sentence to a person, once."""
        with self._changed:
            if sentence not in self._notes:
                self._notes = [*self._notes[-20:], sentence]
