"""Finds the checkpoint to restore, and reads it into memory that a worker can map."""

import contextlib
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from threading import Lock, Timer

from elasticd.checkpoint.commit.committer import Committer, read_manifest
from elasticd.checkpoint.commit.damage_mark import check_marked_block, mark_damage
from elasticd.checkpoint.commit.fetch import extents, fetch
from elasticd.checkpoint.commit.log import CommitLog, LogState
from elasticd.checkpoint.commit.read_lease import ReadLease, leases, reading
from elasticd.checkpoint.format.entry import LogEntryKind
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.manifest import Manifest
from elasticd.checkpoint.format.piece_rows import PieceRows, selected
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.errors import ElasticdError, Fenced, InvariantBroken, Unavailable
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.stream import PieceBatch, stream
from elasticd.keeper.wire.message import Found, Joined

__all__ = ["CheckpointFinder"]

POLL_S = 0.2
LOOKS = 10
"""How often a rank that waits checks, within its time, whether rank 0 still reads; a lease is
renewed more often than that."""
SHARED_S = 10.0
"""How long fetched pieces are kept for the other ranks of this node."""


class CheckpointFinder:
    """Finds the newest checkpoint that is not damaged, and reads it; several threads may use it."""

    def __init__(self, bucket: Bucket, committer: Committer, *, parallel: int) -> None:
        self._bucket, self._committer = bucket, committer
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="fetch")
        self._turn = Lock()
        self._fetching: dict[tuple[int, tuple[PieceRows, ...]], Future[SharedMemory]] = {}
        self._streams: dict[int, Generator[PieceBatch]] = {}
        """The stream of each worker that restores right now; only the worker's own thread uses
        it."""
        self._manifest = lru_cache(maxsize=4)(self._read)

    def find(self, below: int) -> Found:
        """Return the newest checkpoint with a good manifest, and the ones that were passed over.

        Where another rank found a block damaged, that block is read here too.

        Raises:
            Refused: the URL holds the checkpoints of another job.
        """
        log = CommitLog(
            self._bucket
        )  # Of its own: it is read from another thread than the saver's.
        self._committer.check_owner(log.state())
        notes = []
        for entry in log.checkpoints():
            if below and entry.number >= below:
                continue
            try:
                check_marked_block(self._bucket, self._manifest(entry.number))
            except Damaged as exc:
                notes.append(f"The checkpoint of {entry.snapshot} is damaged: {exc}")
                continue
            notes += log.passed_over(entry.number)
            return Found(number=entry.number, snapshot=entry.snapshot, notes=tuple(notes))
        return Found(number=0, notes=(*notes, *log.passed_over(0)))

    def open(self, generation: int, step: int, origin: int | None = None) -> int:
        """Write into the log, at once, that a generation began; return the run."""
        committer = replace(self._committer, bucket=self._bucket, log=CommitLog(self._bucket))
        return committer.open(generation, step, origin)

    def join(
        self, generation: int, timeout_s: float, tell_lost: Callable[[], None] = lambda: None
    ) -> Joined:
        """Wait until this generation is open, and return the checkpoint that it went on from.

        `tell_lost` is called again and again: rank 0 may be waiting for what was lost here.

        Rank 0 opens the generation when it has read everything, which may take long: whenever a
        reader renews a lease, the time limit begins anew.

        Raises: Fenced: a later generation or another run was opened. Unavailable: the generation
        was not opened in time.
        """
        deadline_s = time.monotonic() + timeout_s
        looked_s, beats = time.monotonic(), self._beats()
        log = CommitLog(self._bucket)
        while time.monotonic() < deadline_s:
            tell_lost()
            if time.monotonic() - looked_s > timeout_s / LOOKS:
                looked_s, before, beats = time.monotonic(), beats, self._beats()
                # Not by its time, which is of another clock: whether it is another than before.
                if any(each not in before for each in beats):
                    deadline_s = looked_s + timeout_s
            newest = log.newest_number()
            log_state = log.state(newest)
            self._committer.check_owner(log_state)
            if self._committer.uid in log_state.former:
                raise Fenced(f"A later run of {log_state.job} has begun to write to the same URL.")
            if log_state.uid == self._committer.uid:
                if log_state.generation > generation:
                    raise Fenced(f"Generation {generation} is over, {log_state.generation} began.")
                if log_state.generation == generation:
                    return Joined(run=log_state.run, number=_origin(log, newest, log_state))
            time.sleep(POLL_S)
        raise Unavailable(
            f"Rank 0 has restored nothing in {timeout_s:.0f} s, and nobody reads a checkpoint: "
            "call elasticd.checkpoint.load on all ranks."
        )

    def _beats(self) -> list[ReadLease]:
        """Return the leases of the readers; none if this process may not list them."""
        with contextlib.suppress(ElasticdError):
            return leases(self._bucket)
        return []

    def manifest(self, number: int) -> SharedMemory:
        """Return a manifest's text in memory.

        Raises:
            Damaged: the text is not what was committed.
        """
        text = self._manifest(number).to_json()
        memory = SharedMemory.new(len(text), touch=False)
        memory.view[:] = text
        return memory

    def fetch(self, number: int, pieces: tuple[PieceRows, ...]) -> SharedMemory:
        """Read pieces, verified, into memory where `fetch.extents` places them.

        Raises:
            Damaged: something is gone or not as it was written.
            EnvironmentProblem: there is no memory for them.
        """
        # All ranks of a node that is started again want the same, one a moment after the other.
        key = number, pieces
        with self._turn:
            task = self._fetching.get(key)
            is_first = task is None
            if task is None:
                task = self._fetching[key] = Future()
        if is_first:
            try:
                task.set_result(self._fetch(number, pieces))
            except BaseException as exc:
                task.set_exception(exc)
            timer = Timer(SHARED_S, self._forget, (key,))
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:  # No thread can be had: nobody would free the memory later.
                self._forget(key)
        return task.result()

    def begin(self, worker: int, number: int, pieces: tuple[PieceRows, ...]) -> None:
        """Read pieces in batches for this worker; an earlier stream of this worker ends."""
        self.leave(worker)
        manifest = self._manifest(number)
        wanted = selected(manifest, pieces)
        self._streams[worker] = stream(self._bucket, number, manifest, wanted, self._pool)

    def more(self, worker: int) -> PieceBatch | None:
        """Wait for the next batch, verify it and return it; None if there is none left.

        Raises: Damaged: something is gone or not as it was written. EnvironmentProblem: there is no
        memory.
        """
        if worker not in self._streams:
            raise InvariantBroken("nothing is being read for this worker")
        batch = None
        try:
            batch = next(self._streams[worker], None)
        finally:
            if batch is None:
                self.leave(worker)
        return batch

    def leave(self, worker: int) -> None:
        """Forget a worker that wants nothing more; cancel the reads for it."""
        ended = self._streams.pop(worker, None)
        if ended is not None:
            ended.close()

    def _forget(self, key: tuple[int, tuple[PieceRows, ...]]) -> None:
        with self._turn:
            self._fetching.pop(key, None)

    def _fetch(self, number: int, pieces: tuple[PieceRows, ...]) -> SharedMemory:
        manifest = self._manifest(number)
        every, _, size = extents(manifest, selected(manifest, pieces))
        memory = SharedMemory.new(size, touch=False)
        try:
            with reading(self._bucket, number):
                fetch(self._bucket, manifest, every, memory.view, self._pool)
        except Damaged as exc:
            if exc.block is not None:
                with contextlib.suppress(ElasticdError):  # Then the next start finds it again.
                    mark_damage(self._bucket, manifest.header.snapshot, exc.block)
            raise
        return memory

    def close(self) -> None:
        """End, and drop the fetched memory."""
        with self._turn:
            self._fetching.clear()
        with contextlib.suppress(RuntimeError):
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, number: int) -> Manifest:
        return read_manifest(self._bucket, CommitLog(self._bucket).entry(number))


def _origin(log: CommitLog, newest: int, log_state: LogState) -> int:
    """Return the number of the checkpoint that the ruling generation went on from; 0 if it went on
    from none.

    Raises: Damaged: its entry cannot be read. The ranks must not go on from different states.
    """
    is_before = False
    for entry in log.back_from(newest):
        made = entry.snapshot
        is_opening = entry.kind is LogEntryKind.OPENED
        if is_opening and (made.run, made.generation) == (log_state.run, log_state.generation):
            if entry.origin is not None:
                return entry.origin
            is_before = True  # An older elasticd wrote it: the newest of the step is meant.
        elif is_before and entry.kind is LogEntryKind.COMMITTED:
            if made.step == log_state.start_step:
                return entry.number
            if not log_state.start_step:
                return 0  # It began anew, since the newest checkpoint is not of step 0.
    if log_state.start_step:
        raise Damaged(f"No entry of the log names the checkpoint of step {log_state.start_step}.")
    return 0
