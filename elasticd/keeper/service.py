"""The keeper's socket: one thread for each worker, which answers its questions in turn."""

import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Event, Thread
from typing import Any

from elasticd import __version__, errors
from elasticd.checkpoint.commit.committer import CommitOutcome
from elasticd.checkpoint.commit.upload import UploadShare
from elasticd.checkpoint.format.manifest import Header
from elasticd.errors import ElasticdError, InvariantBroken
from elasticd.keeper.checkpoint_finder import CheckpointFinder
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.memory.share_memory import ShareMemory
from elasticd.keeper.memory.share_record import ShareRecord, held_of
from elasticd.keeper.metrics import Metrics
from elasticd.keeper.mirror.receiver import MirrorReceiver
from elasticd.keeper.mirror.sender import MirrorSender
from elasticd.keeper.saver import Saver
from elasticd.keeper.stream import PieceBatch
from elasticd.keeper.wire import message as ms
from elasticd.keeper.wire.line import KeeperConnection
from elasticd.net.peer import peer_of
from elasticd.telemetry.log import get_logger

__all__ = ["Service"]

_LOST = "The process that keeps this node's checkpoints does not have it, or not any more."
_NO_ROOM = (
    "There is no memory for a third buffer of each share on this node, and an upload takes longer "
    "than two snapshots. So every second upload is given up, and no snapshot is taken until the "
    "other one is done: give the node more memory, or upload less often "
    "(--checkpoint-upload-every)."
)
ACCEPT_PAUSE_S = 0.5
"""The pause when there is no free descriptor for a client; soon one may be free."""

log = get_logger()

Answer = tuple[object, SharedMemory | None]
"""A message, and the memory whose file goes with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Answer the workers of one job."""

    share_memory: ShareMemory
    saver: Saver
    finder: CheckpointFinder
    job: str
    uid: str
    sender: MirrorSender | None = None
    """It sends to the next node's keeper; `receiver` takes from the one before."""
    receiver: MirrorReceiver | None = None
    metrics: Metrics = field(default_factory=lambda: Metrics("", ""))
    _workers: set[int] = field(default_factory=set, init=False)
    """Those whose connection is not at its end."""
    _left: Condition = field(default_factory=Condition, init=False)
    _has_no_room: Event = field(default_factory=Event, init=False)
    """It was said that there is no memory for a third buffer."""

    def listen(self, name: str) -> None:
        """Serve an abstract unix socket of this name until the process ends."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind("\0" + name)
            listener.listen(128)
            worker = 0
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError as exc:
                    log.warning("worker.not_accepted", why=str(exc))
                    time.sleep(ACCEPT_PAUSE_S)
                    continue
                worker += 1
                # Any process of the machine can connect; the kernel says whose it is.
                user = peer_of(sock).uid
                if user not in (os.getuid(), 0):
                    log.warning("worker.refused", user=user)
                    sock.close()
                    continue
                self._begin(sock, worker)

    def wait_left(self, timeout_s: float) -> bool:
        """Wait until all workers that connected have left; return False if one has not in time.

        Their last messages have been handled then: one may have been waiting in a connection.
        """
        with self._left:
            return self._left.wait_for(lambda: not self._workers, timeout_s)

    def _begin(self, sock: socket.socket, worker: int) -> None:
        with self._left:
            self._workers.add(worker)
        try:
            Thread(target=self._serve, args=(sock, worker), daemon=True).start()
        except RuntimeError as exc:  # No thread can be had: the worker connects again later.
            log.warning("worker.not_accepted", why=str(exc))
            sock.close()
            with self._left:
                self._workers.discard(worker)
                self._left.notify_all()

    def _serve(self, sock: socket.socket, worker: int) -> None:
        line = KeeperConnection(sock, ms.QUESTIONS)
        try:
            with suppress(EOFError, OSError, InvariantBroken):
                while True:
                    self._serve_one(line, worker)
        finally:
            line.close()
            self.share_memory.leave(worker)
            self.finder.leave(worker)
            if self.sender is not None:
                self.sender.leave(worker)
            with self._left:
                self._workers.discard(worker)
                self._left.notify_all()

    def _serve_one(self, line: KeeperConnection, worker: int) -> None:
        """Answer one question, and drop references to the answer before the next question comes."""
        question, files = line.receive()
        for each in files:
            os.close(each)  # Nobody gives us any.
        answer, memory = self._answer(worker, question)
        line.send(answer, () if memory is None else (memory.file,))

    def _answer(self, worker: int, question: Any) -> Answer:
        try:
            return self._do(worker, question)
        except ElasticdError as exc:
            return ms.Failed(kind=type(exc).__name__, why=str(exc)), None
        except Exception as exc:
            log.exception("question.not_answered", question=type(question).__name__)
            return ms.Failed(kind="InvariantBroken", why=f"{type(exc).__name__}: {exc}"), None

    def _do(self, worker: int, question: Any) -> Answer:
        match question:
            case ms.Open():
                generation, step, origin = question.generation, question.step, question.origin
                run = self.saver.open(generation, step, question.run, origin)
                if not run:
                    run = self.finder.open(generation, step, origin)
                    self.saver.use_run(run)
                return ms.Opened(run=run), None
            case ms.Plans():
                self.share_memory.plan(worker, question.plans)
                if self.sender is not None:
                    self.sender.plan(worker)
                return ms.Done(), None
            case ms.Claim():
                if question.snapshot is not None:
                    plan = self.share_memory.plan_of(worker, question.plan)
                    self.saver.claims.claim(question.snapshot, plan)
                buffer, memory = self.share_memory.claim(worker, question.plan)
                return ms.Claimed(buffer=buffer), memory
            case ms.ReleaseBuffer():
                self.share_memory.drop(worker, question.plan)
                return ms.Done(), None
            case ms.GetAddress():
                return ms.Address(door=self.receiver.address() if self.receiver else None), None
            case ms.Mirror():
                if self.sender is not None:
                    self.sender.use(worker, question.door)
                return ms.Done(), None
            case ms.SaveSnapshot():
                self._take(worker, question)
                return ms.Done(), None
            case ms.GetStatus():
                return self._status(worker), None
            case ms.GetProgress():
                done, total = self.saver.progress
                return ms.Progress(done_bytes=done, total_bytes=total), None
            case ms.WaitDurable():
                job = self.saver.wait(question.snapshot, question.timeout_s)
                if job is None:
                    is_known = self.saver.is_known(question.snapshot)
                    return ms.Durability(
                        is_durable=False, why=ms.LONGER if is_known else _LOST
                    ), None
                is_durable = job.outcome in (CommitOutcome.COMMITTED, CommitOutcome.ALREADY)
                return ms.Durability(is_durable=is_durable, why=job.why), None
            case _:
                return self._restore(worker, question)

    def _status(self, worker: int) -> ms.Status:
        awaits_upload = self.share_memory.awaits_upload(worker)
        self.metrics.held_up(awaits_upload or self.share_memory.awaits_upload())
        if awaits_upload and not self._has_no_room.is_set():
            self._has_no_room.set()
            self.saver.note(_NO_ROOM)
        return ms.Status(
            is_busy=self.saver.is_busy,
            durable_step=self.saver.durable_step,
            awaits_upload=awaits_upload,
            notes=self.saver.take_notes(),
            is_sending=self.sender is not None and self.sender.is_sending,
        )

    def _restore(self, worker: int, question: Any) -> Answer:
        """Answer a worker's questions of a restore: which checkpoints exist, and their bytes."""
        match question:
            case ms.Find():
                self.saver.wait_idle(question.settle_s, question.generation)
                return self.finder.find(question.below), None
            case ms.Join():
                tell_lost = partial(self.saver.claims.tell_lost, question.generation)
                return self.finder.join(question.generation, question.timeout_s, tell_lost), None
            case ms.Read():
                return _shared(self.finder.manifest(question.number))
            case ms.Fetch():
                return _shared(self.finder.fetch(question.number, question.pieces))
            case ms.Stream():
                self.finder.begin(worker, question.number, question.pieces)
                return _batch(self.finder.more(worker))
            case ms.More():
                return _batch(self.finder.more(worker))
            case ms.List():
                self.share_memory.received.protect()
                held = tuple(
                    held_of(each) for each in self.share_memory.records() if each.is_wanted
                )
                return ms.Listed(held=held), None
            case ms.Map():
                return self._map(question.held)
        raise InvariantBroken(f"no answer to {type(question).__name__}")

    def _take(self, worker: int, taken: ms.SaveSnapshot) -> None:
        plan = self.share_memory.plan_of(worker, taken.plan)
        header = None
        if plan.tensors or plan.share == 0:
            header = Header(
                snapshot=taken.snapshot,
                job=self.job,
                uid=self.uid,
                epoch=taken.epoch,
                world_size=taken.world_size,
                shares=plan.shares,
                taken_unix_s=time.time(),
                version=__version__,
                skeleton=taken.skeleton,
                tensors=plan.tensors,
            )
        record = ShareRecord(
            share=UploadShare(
                snapshot=taken.snapshot,
                share=plan.share,
                shares=plan.shares,
                holder=plan.holder,
                layout=plan.layout,
                header=header,
            ),
            memory=self.share_memory.memory(worker, taken.plan, taken.buffer),
            epoch=taken.epoch,
            saving=taken.saving,
            is_on_one_node=taken.is_on_one_node,
        )
        self.share_memory.add(worker, taken.plan, taken.buffer, record)
        self.saver.claims.handed_over(taken.snapshot, plan)
        if record.saving is not ms.Saving.NONE:
            self.saver.add(record)
        if plan.is_alone and self.sender is not None:
            self.sender.add(worker, record)

    def _map(self, held: ms.Held) -> Answer:
        record = self.share_memory.find(held)
        if record is None:
            raise errors.NotFound("That snapshot is not in memory any more.")
        sums, header = record.sums(), record.header
        if not record.is_wanted:  # They were taken while it was written to, perhaps.
            raise errors.NotFound("That snapshot was just overwritten by a newer one.")
        return ms.Mapped(
            layout=record.share.layout,
            epoch=record.epoch,
            skeleton=header.skeleton if header is not None else "",
            tensors=header.tensors if header is not None else (),
            sums=sums,
        ), record.memory


def _batch(batch: PieceBatch | None) -> Answer:
    if batch is None:
        return ms.Batch(slot=0, count=0), None
    said = ms.Batch(slot=batch.slot, count=len(batch.pieces))
    return said, batch.memory if batch.is_first else None


def _shared(memory: SharedMemory) -> Answer:
    return ms.Shared(size=memory.size), memory
