"""Sends shares that no other node has to the keeper of the next node, in one thread.

Nothing waits for the sending: no worker, no upload, no step. A peer that is away, slow or full is
logged once, counted, and tried again after growing pauses; the next snapshot of a share replaces
one that waits. The bytes go straight from the memory into which the worker copied. That memory may
be given to another snapshot meanwhile, so the sender checks the memory before the last message,
without which the share does not count.
"""

import os
import socket
import time
from collections.abc import Callable
from threading import Condition, Thread

from elasticd.checkpoint.commit.upload import Abandoned
from elasticd.checkpoint.format.checksum import blocks, sum_of_sums
from elasticd.errors import Refused, Unavailable
from elasticd.keeper.memory.memfd import SLOWEST_BYTES_PER_S
from elasticd.keeper.memory.share_record import ShareRecord
from elasticd.keeper.metrics import Metrics
from elasticd.keeper.mirror.connection import MirrorConnection, client_handshake
from elasticd.keeper.mirror.pacing import SendPacing
from elasticd.keeper.mirror.protocol import (
    ANSWER_LIMIT_BYTES,
    ANSWERS,
    Held,
    NotNow,
    Offer,
    Sealed,
    Wanted,
)
from elasticd.keeper.mirror.queue import MirrorQueue, MirrorTask
from elasticd.keeper.wire.message import KeeperAddress
from elasticd.telemetry.log import get_logger

__all__ = ["MirrorSender"]

CONNECT_LIMIT_S = 5.0

log = get_logger()


class MirrorSender:
    """Send shares for one keeper. Several threads may use it."""

    def __init__(
        self,
        *,
        job: str,
        uid: str,
        niceness: int = 0,
        metrics: Metrics | None = None,
        note: Callable[[str], None] = lambda sentence: None,
        pacing: SendPacing | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """`note` gets sentences that a person should read. `niceness` is that of the thread that
        sends.
        """
        self._job, self._uid, self._niceness = job, uid, niceness
        self._metrics = metrics or Metrics(job, "")
        self._note = note
        self._pacing, self._sleep = pacing or SendPacing(), sleep
        self._changed = Condition()
        self._mirror = MirrorQueue()
        self._is_running = self._is_busy = self._is_closed = False
        self._why = ""
        """What was wrong at the last try."""

    def use(self, worker: int, address: KeeperAddress) -> None:
        """Send the present and future shares of this worker to that keeper."""
        with self._changed:
            self._mirror.use(worker, address)
            if not self._is_running:
                self._is_running = True
                Thread(target=self._run, name="mirror", daemon=True).start()
            self._changed.notify_all()

    def plan(self, worker: int) -> None:
        """Take note of a worker's new plan; the worker says anew where to send."""
        with self._changed:
            self._mirror.plan(worker)

    def add(self, worker: int, record: ShareRecord) -> None:
        """Add a share that is complete on this node, and on no other; return at once."""
        with self._changed:
            self._mirror.add(worker, record)
            self._changed.notify_all()

    def leave(self, worker: int) -> None:
        """Forget a worker that is gone."""
        with self._changed:
            self._mirror.leave(worker)

    @property
    def is_sending(self) -> bool:
        """Return whether a share is being sent, or waits and was not tried yet."""
        with self._changed:
            return self._is_busy or self._mirror.is_new

    def finish(self, timeout_s: float) -> None:
        """Wait, up to a limit, until each waiting share was tried once: the node may leave."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._is_busy or self._mirror.is_new), timeout_s)

    def close(self) -> None:
        """Begin nothing more, and report nothing of the share that is being sent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        os.nice(self._niceness)  # On Linux that is this thread alone.
        while True:
            with self._changed:
                task = self._mirror.next(time.monotonic())
                while task is None and not self._is_closed:
                    self._changed.wait(self._mirror.pause_s(time.monotonic()))
                    task = self._mirror.next(time.monotonic())
                if task is None or self._is_closed:
                    return
                self._is_busy = True
            try:
                self._bring(task)
            except Exception:
                log.exception("share.sending_broke")
            del task  # It holds memory.
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    def _bring(self, task: MirrorTask) -> None:
        share = task.record.share
        try:
            assert task.address is not None
            sent_bytes = self._send(task.address, task.record)
        except Abandoned:
            self._failed(self._too_slow())
        except (OSError, EOFError, Refused, Unavailable) as exc:
            self._failed(str(exc) or type(exc).__name__)
            with self._changed:
                self._mirror.failed(task, time.monotonic())
        else:
            if self._why or not self._metrics.has_mirrored:
                log.info("share.sent", step=share.snapshot.step, share=share.share)
            self._why = ""
            self._metrics.mirrored(share.snapshot.step, sent_bytes)

    def _failed(self, why: str) -> None:
        """Count a failure; report it if the reason is new."""
        self._metrics.not_mirrored()
        if why != self._why and not self._is_closed:
            self._why = why
            log.warning("share.not_sent", why=why)
            self._note(
                "What only this node has of the state has no second copy at the moment, so that "
                f"its loss would cost more than the steps since the last snapshot: {why}"
            )

    def _too_slow(self) -> str:
        rate = self._pacing.bytes_per_s
        if not rate:
            return "It takes longer than two snapshots."
        return (
            f"It takes longer than two snapshots at --mirror-bandwidth {rate / 1e6:.0f} MB/s: "
            "allow more, or take snapshots less often."
        )

    def _send(self, address: KeeperAddress, record: ShareRecord) -> int:
        """Send a share; return how many bytes were sent, once the other keeper holds the share."""
        with socket.create_connection(
            (address.host, address.port), timeout=CONNECT_LIMIT_S
        ) as sock:
            connection = client_handshake(sock, address.token)
            connection.watch()
            connection.send(self._offer(record))
            # The other keeper takes the memory before it answers, and that may be slow.
            if _is_held_there(connection, record.memory.size / SLOWEST_BYTES_PER_S):
                return 0
            for start, size in record.share.layout.parts:
                for block in blocks(record.memory.view[start : start + size]):
                    pause_s = self._pacing.pause_s(len(block), time.monotonic())
                    if pause_s > 0:
                        self._sleep(pause_s)
                    if not record.is_wanted:
                        raise Abandoned
                    connection.send_block(block)
            sums = record.sums()
            if not record.is_wanted:
                raise Abandoned
            connection.send(Sealed(sum=sum_of_sums(sums)))
            if not _is_held_there(connection):
                raise Refused("The other keeper asks for the same bytes again.")
            return record.memory.size

    def _offer(self, record: ShareRecord) -> Offer:
        share = record.share
        return Offer(
            job=self._job,
            uid=self._uid,
            snapshot=share.snapshot,
            share=share.share,
            shares=share.shares,
            epoch=record.epoch,
            layout=share.layout,
            header=share.header,
            saving=record.saving,
        )


def _is_held_there(connection: MirrorConnection, more_s: float = 0.0) -> bool:
    """Return True if the other keeper holds the share, False if it wants the bytes.

    `more_s` as in `MirrorConnection.receive`.

    Raises: Unavailable: the other keeper does not accept the share now.
    """
    match connection.receive(ANSWERS, ANSWER_LIMIT_BYTES, more_s=more_s):
        case Held():
            return True
        case Wanted():
            return False
        case NotNow(why=why):
            raise Unavailable(f"The next node's keeper does not take it: {why}")
        case other:
            raise Refused(f"It answers {type(other).__name__}.")
