"""Uploads the shares of a snapshot that are in this keeper's memory, in the save's thread.

A keeper uploads what it is the first holder of. A second copy it uploads only where the first
holder has not. Parts are written in a pool of threads that all uploads of the keeper share.
"""

import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event, Lock

from elasticd.checkpoint.commit.committer import Committer
from elasticd.checkpoint.commit.fail_point import fail_point
from elasticd.checkpoint.commit.upload import upload
from elasticd.checkpoint.format.layout import fragment_name
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.errors import ElasticdError, EnvironmentProblem
from elasticd.keeper.memory.share_memory import ShareMemory
from elasticd.keeper.memory.share_record import ShareRecord
from elasticd.keeper.save.cancellable_bucket import CancellableBucket
from elasticd.keeper.save.snapshot_save import SaveStage, SnapshotSave
from elasticd.keeper.wire.message import Saving

__all__ = ["ShareUploader"]


class ShareUploader:
    """The uploads of a keeper; each save calls it in a thread of its own."""

    def __init__(
        self, bucket: Bucket, committer: Committer, share_memory: ShareMemory, *, parallel: int
    ) -> None:
        self._bucket, self._committer, self._share_memory = bucket, committer, share_memory
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="upload")
        self._writer = secrets.token_hex(4)
        self._counting = Lock()
        self._is_closed = Event()

    def upload_own(self, job: SnapshotSave) -> None:
        """Upload all shares of which this node is the first holder.

        If the storage has no room for one, and no other node has any, the others are deleted: they
        are of no use, and would take the room of the next snapshot.

        Raises: Abandoned: the memory was needed for a newer snapshot, or the keeper ends.
        ElasticdError: the storage does not take a share.
        """
        while mine := [r for r in self.held(job) if r.share.holder == 0 and not r.is_uploaded]:
            job.missing_s = None
            for record in mine:
                try:
                    self._upload(job, record)
                except EnvironmentProblem:
                    if job.is_on_one_node:
                        with suppress(ElasticdError):
                            self._delete(job)
                    raise
                job.uploaded_s = time.monotonic()

    def upload_second_copies(self, job: SnapshotSave) -> None:
        """Upload the second copy of each share whose first holder has not uploaded it.

        Raises: Abandoned, ElasticdError: as `upload_own`.
        """
        for record in self.held(job):
            share = record.share
            if share.holder and not record.is_uploaded and share.share not in job.own:
                if self._committer.fragment(job.snapshot, share.share) is None:
                    self._upload(job, record)
                else:
                    record.is_uploaded = True

    def held(self, job: SnapshotSave) -> list[ShareRecord]:
        """Return the shares that are here and are to be uploaded."""
        return [
            record
            for record in self._share_memory.records()
            if record.share.snapshot == job.snapshot
            and record.is_wanted
            and record.saving is not Saving.NONE
        ]

    def close(self) -> None:
        """End the uploads under way, without waiting for a request that hangs."""
        self._is_closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _upload(self, job: SnapshotSave, record: ShareRecord) -> None:
        job.enter(SaveStage.UPLOADING)
        fail_point("upload.begun")

        def is_wanted() -> bool:
            is_given_up = job.is_abandoned or self._is_closed.is_set()
            return record.is_wanted and not is_given_up

        job.own[record.share.share] = upload(
            CancellableBucket(self._bucket, is_wanted),
            record.share,
            record.memory.view,
            uid=self._committer.uid,
            writer=self._writer,
            pool=self._pool,
            is_wanted=is_wanted,
            wrote=lambda size: self._count(record, size),
            sums_of=record.sums_of,
        )
        record.is_uploaded = True
        job.enter(SaveStage.WAITING)
        fail_point("upload.fragment")

    def _delete(self, job: SnapshotSave) -> None:
        """Delete the shares that were uploaded whole: each fragment first, then what it names.

        An earlier keeper may have left a fragment under the same name, which this one did not
        replace and which may be in a checkpoint.
        """
        for share, own in list(job.own.items()):
            if self._committer.fragment(job.snapshot, share) == own:
                parts = [f"{job.snapshot.folder}/{part.name}" for part in own.parts]
                self._bucket.delete([fragment_name(job.snapshot, share, 0)])
                self._bucket.delete(parts)
                del job.own[share]

    def _count(self, record: ShareRecord, size: int) -> None:
        with self._counting:
            record.uploaded_bytes += size
