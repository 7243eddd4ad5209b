"""Two keepers over loopback: what one holds alone it sends to the other."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import ClassVar

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.keeper.memory.share_record import ShareRecord
from elasticd.keeper.metrics import Metrics
from elasticd.keeper.mirror.connection import MirrorConnection, client_handshake
from elasticd.keeper.mirror.pacing import SendPacing
from elasticd.keeper.mirror.receiver import MirrorReceiver
from elasticd.keeper.mirror.sender import MirrorSender
from elasticd.keeper.wire.message import KeeperAddress, Plan, Saving
from tests.fixtures.cluster import until
from tests.unit.keeper.site import PATIENCE_S, Node, record_of

__all__ = ["HOST", "WORKER", "Counts", "Far", "Near", "Proxy", "seconds"]

HOST = "127.0.0.1"
WORKER = 1


class Counts(Metrics):
    """What was counted, to be looked at."""

    def __init__(self) -> None:
        super().__init__("job", "")
        self.steps: list[int] = []
        self.sent_bytes = self.failures = 0

    def mirrored(self, step: int, nbytes: int) -> None:
        super().mirrored(step, nbytes)
        self.steps.append(step)
        self.sent_bytes += nbytes

    def not_mirrored(self) -> None:
        super().not_mirrored()
        self.failures += 1


class Far(Node):
    """The next node's keeper."""

    def __init__(self, folder: Path) -> None:
        super().__init__(FolderBucket(str(folder)))
        self.receiver = MirrorReceiver(
            self.share_memory, self.saver.add, host=HOST, job="job", uid="uid"
        )

    @property
    def address(self) -> KeeperAddress:
        address = self.receiver.address()
        assert address is not None
        return address

    def visit(self, token: str = "") -> MirrorConnection:
        """Come in as a keeper does."""
        sock = socket.create_connection((self.address.host, self.address.port), timeout=PATIENCE_S)
        return client_handshake(sock, token or self.address.token)


class Near(Node):
    """The keeper whose workers take snapshots; they have told it of a plan."""

    made: ClassVar[list["Near"]] = []

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        *,
        pacing: SendPacing | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(FolderBucket(str(folder)))
        self.counts, self.notes = Counts(), list[str]()
        self.sender = MirrorSender(
            job="job",
            uid="uid",
            metrics=self.counts,
            note=self.notes.append,
            pacing=pacing,
            sleep=sleep,
        )
        self.plan = plan
        self.share_memory.plan(WORKER, [plan])
        Near.made.append(self)

    def snapshot(self, made: Snapshot, saving: Saving = Saving.USUAL) -> ShareRecord:
        """Copy one, and hand it over."""
        buffer, _ = self.share_memory.claim(WORKER, self.plan.id)
        memory = self.share_memory.memory(WORKER, self.plan.id, buffer)
        memory.view[:] = content(made, memory.size)
        record = record_of(self.share_memory, WORKER, self.plan, buffer, made)
        record.saving = saving
        self.share_memory.add(WORKER, self.plan.id, buffer, record)
        self.sender.add(WORKER, record)
        return record


def content(made: Snapshot, size: int) -> bytes:
    """Other bytes for each step, and at each place."""
    return bytes((made.step + index) % 251 for index in range(size))


def seconds(node: Node) -> list[ShareRecord]:
    """What a node holds for others, each bit for bit; oldest first."""
    found = sorted(node.share_memory.received.records(), key=lambda each: each.share.snapshot)
    for each in found:
        assert each.share.holder == 1
        assert bytes(each.memory.view) == content(each.share.snapshot, each.memory.size)
    return found


def steps(node: Node) -> list[int]:
    return [each.share.snapshot.step for each in seconds(node)]


def wait_steps(node: Node, *wanted: int) -> None:
    until(lambda: steps(node) == list(wanted), lambda: steps(node))


class Proxy:
    """Stands before a keeper, for one client: passes so many bytes on, does what it is told
    then (it may wait), and hangs up on both."""

    def __init__(
        self, address: KeeperAddress, limit_bytes: int, then: Callable[[], object]
    ) -> None:
        self._to, self._limit, self._then = address, limit_bytes, then
        self._listener = socket.create_server((HOST, 0))
        port = self._listener.getsockname()[1]
        self.address = KeeperAddress(host=HOST, port=port, token=address.token)
        self.reached = Event()
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with self._listener:
            near, _ = self._listener.accept()
        with near, socket.create_connection((self._to.host, self._to.port)) as far:
            Thread(target=self._back, args=(far, near), daemon=True).start()
            while data := near.recv(4096):
                data = data[: self._limit]
                self._limit -= len(data)
                far.sendall(data)
                if not self._limit:
                    self.reached.set()
                    self._then()
                    far.shutdown(socket.SHUT_RDWR)  # The other thread waits in it.
                    return

    def _back(self, far: socket.socket, near: socket.socket) -> None:
        try:
            while data := far.recv(4096):
                near.sendall(data)
        except OSError:
            return
