"""The keeper's socket: what workers ask over it, and who may."""

import os
import secrets
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.piece_rows import PieceRows
from elasticd.errors import EnvironmentProblem, InvariantBroken, NotFound, Unavailable
from elasticd.keeper import saver as saver_module
from elasticd.keeper import service as service_module
from elasticd.keeper.assembly import KeeperParts
from elasticd.keeper.checkpoint_finder import CheckpointFinder
from elasticd.keeper.client import Client
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.memory.share_record import BUFFERS, ShareRecord
from elasticd.keeper.mirror.sender import MirrorSender
from elasticd.keeper.service import Service
from elasticd.keeper.wire import message as ms
from elasticd.net.peer import Peer
from elasticd.train.restore.checkpoint_stream import mapped
from tests.fixtures.cluster import until
from tests.fixtures.open_files import open_files, wait_until_closed
from tests.unit.keeper.site import (
    PATIENCE_S,
    Gate,
    Node,
    a_plan,
    a_snapshot,
    committed,
    memfds,
)

PLAN = a_plan()
TENSORS = PLAN.tensors


class Place:
    """A keeper that listens, and workers that connect to it."""

    def __init__(self, folder: Path) -> None:
        self.gate = Gate("create", "nothing")
        bucket = self.gate.over(folder)
        self.node = Node(bucket)
        self.node.committer.open(1, 0)
        self.name = f"elasticd-test-{secrets.token_hex(8)}"
        finder = CheckpointFinder(bucket, self.node.committer, parallel=2)
        self.service = Service(
            share_memory=self.node.share_memory,
            saver=self.node.saver,
            finder=finder,
            job="job",
            uid="uid",
        )
        Thread(target=self.service.listen, args=(self.name,), daemon=True).start()
        self.worker().close()  # From now on it listens.

    def worker(self) -> Client:
        return Client(self.name)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.gate.opened.set()
    made.node.saver.close(0.0)


def taken(
    client: Client,
    step: int,
    plan: ms.Plan = PLAN,
    known: list[SharedMemory] | None = None,
    saving: ms.Saving = ms.Saving.USUAL,
) -> None:
    """Claim, copy, and hand over; `known` has the buffers' memory in their order."""
    known = [] if known is None else known
    said, memory = client.ask_memory(ms.Claim(plan=plan.id), ms.Claimed, timeout_s=PATIENCE_S)
    known += [memory] if memory is not None else []
    known[said.buffer].view[:] = bytes([step]) * known[said.buffer].size
    question = ms.SaveSnapshot(
        plan=plan.id, buffer=said.buffer, snapshot=a_snapshot(step), epoch=3, world_size=1,
        skeleton="{}", saving=saving,
    )  # fmt: skip
    client.ask(question, ms.Done, timeout_s=PATIENCE_S)


def planned(client: Client, *plans: ms.Plan) -> None:
    client.ask(ms.Plans(plans=plans or (PLAN,)), ms.Done, timeout_s=PATIENCE_S)


def test_snapshot_goes_from_a_worker_to_storage_and_back(place: Place) -> None:
    """Over the socket, with all questions of a worker's life."""
    client = place.worker()
    opened = client.ask(ms.Open(generation=2, step=0), ms.Opened, timeout_s=PATIENCE_S)
    assert opened.run == 1
    planned(client)
    made = a_snapshot(10)
    taken(client, 10)
    awaited = client.ask(ms.WaitDurable(snapshot=made, timeout_s=PATIENCE_S), ms.Durability)
    assert awaited == ms.Durability(is_durable=False, why=awaited.why), "generation 2 began at 0"
    said, memory = client.ask_memory(ms.Claim(plan=PLAN.id), ms.Claimed)
    assert memory is not None and said.buffer == 1
    memory.view[:] = b"\x0b" * 100
    newer = a_snapshot(11, generation=2)
    client.send(ms.SaveSnapshot(plan=PLAN.id, buffer=1, snapshot=newer, epoch=3, world_size=1))
    awaited = client.ask(ms.WaitDurable(snapshot=newer, timeout_s=PATIENCE_S), ms.Durability)
    assert awaited.is_durable
    standing = client.ask(ms.GetStatus(), ms.Status)
    assert standing == ms.Status(is_busy=False, durable_step=11)
    found = client.ask(ms.Find(settle_s=PATIENCE_S), ms.Found)
    assert found.snapshot == newer
    fetch = ms.Fetch(number=found.number, pieces=(PieceRows(0, 0, 100),))
    shared, memory = client.ask_memory(fetch, ms.Shared)
    assert memory is not None and memory.size >= shared.size >= 100
    assert bytes(memory.view[:100]) == b"\x0b" * 100
    assert [each.snapshot for each in committed(place.node.bucket)] == [newer]


def test_what_a_dead_worker_had_is_listed_and_mapped_by_others(place: Place) -> None:
    """With its layout and what is no tensor; what is being overwritten is not."""
    client = place.worker()
    planned(client)
    known: list[SharedMemory] = []
    for step in (10, 20):
        taken(client, step, known=known)
    client.close()
    other = place.worker()

    def listed() -> tuple[ms.Held, ...] | None:
        held = other.ask(ms.List(), ms.Listed, timeout_s=PATIENCE_S).held
        return held if [each.snapshot.step for each in held] == [20] else None

    # What is older than a whole one goes as soon as it is noticed that the worker has gone.
    held = until(listed, lambda: place.service.share_memory.records())
    for one in held:
        mapped, memory = other.ask_memory(ms.Map(held=one), ms.Mapped, timeout_s=PATIENCE_S)
        assert memory is not None
        assert bytes(memory.view) == bytes([one.snapshot.step]) * 100
        assert (mapped.layout, mapped.epoch, mapped.skeleton) == (PLAN.layout, 3, "{}")
        assert mapped.tensors == TENSORS
    gone = ms.Held(snapshot=a_snapshot(5), share=0, shares=1, holder=0, nbytes=100)
    with pytest.raises(NotFound, match="not in memory any more"):
        other.ask_memory(ms.Map(held=gone), ms.Mapped, timeout_s=PATIENCE_S)
    other.close()


def test_memory_that_changed_since_it_was_whole_is_refused(place: Place) -> None:
    """A byte of it, whoever wrote there: no worker restores it."""
    client = place.worker()
    planned(client)
    known: list[SharedMemory] = []
    taken(client, 10, known=known)
    (held,) = client.ask(ms.List(), ms.Listed, timeout_s=PATIENCE_S).held
    _, brought = mapped(client, held)
    assert bytes(brought.memory) == b"\x0a" * 100
    brought.check()
    known[0].view[50] ^= 1
    _, brought = mapped(client, held)
    with pytest.raises(Damaged, match="in the memory of this node is not as it was saved"):
        brought.check()
    client.close()


def test_memory_that_is_overwritten_while_sums_are_taken_is_no_snapshot(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They fit what is there, which is half of another snapshot."""
    client = place.worker()
    planned(client)
    taken(client, 10, known=[])
    (held,) = client.ask(ms.List(), ms.Listed, timeout_s=PATIENCE_S).held
    (record,) = place.service.share_memory.records()
    of_what_is_there = ShareRecord.sums

    def overwritten(record: ShareRecord) -> tuple[tuple[str, ...], ...]:
        record.is_wanted = False
        return of_what_is_there(record)

    monkeypatch.setattr(ShareRecord, "sums", overwritten)
    with pytest.raises(NotFound, match="overwritten"):
        mapped(client, held)
    assert not record.is_wanted
    client.close()


def test_snapshot_that_is_lost_is_not_waited_for(place: Place) -> None:
    """A worker that asks a keeper which was started again would ask for ever, and at once."""
    client = place.worker()
    awaited = client.ask(ms.WaitDurable(snapshot=a_snapshot(), timeout_s=PATIENCE_S), ms.Durability)
    assert not awaited.is_durable and "does not have it" in awaited.why
    planned(client, a_plan(0, 2))
    taken(client, 10, a_plan(0, 2))
    awaited = client.ask(ms.WaitDurable(snapshot=a_snapshot(), timeout_s=0.0), ms.Durability)
    assert awaited == ms.Durability(is_durable=False, why="It takes longer than that.")
    client.close()


def test_wrong_question_is_answered_and_costs_nobody_the_connection(place: Place) -> None:
    """A plan that is not known, a buffer that was not claimed, a checkpoint that is not there."""
    client = place.worker()
    for unknown in (ms.Claim(plan=77), ms.ReleaseBuffer(plan=77, buffer=0)):
        with pytest.raises(InvariantBroken, match="plan 77 of worker"):
            client.ask(unknown, ms.Done, timeout_s=PATIENCE_S)
    planned(client)
    question = ms.SaveSnapshot(plan=PLAN.id, buffer=0, snapshot=a_snapshot(), epoch=0, world_size=1)
    with pytest.raises(InvariantBroken):
        client.ask(question, ms.Done, timeout_s=PATIENCE_S)
    with pytest.raises(Exception, match=r"000000000099\.json"):
        client.ask(ms.Read(number=99), ms.Shared, timeout_s=PATIENCE_S)
    taken(client, 10)
    client.close()


def test_what_was_fetched_is_freed_when_the_worker_lets_go(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper does not hold it until that worker asks again, which may be in an hour."""

    def fetched(
        finder: CheckpointFinder, number: int, pieces: tuple[PieceRows, ...]
    ) -> SharedMemory:
        return SharedMemory.new(5000)

    monkeypatch.setattr(CheckpointFinder, "fetch", fetched)
    before = memfds()
    client = place.worker()
    fetch = ms.Fetch(number=1, pieces=(PieceRows(0, 0, 1),))
    _, memory = client.ask_memory(fetch, ms.Shared, timeout_s=PATIENCE_S)
    assert memory is not None
    del memory
    until(lambda: memfds() <= before, memfds)
    client.close()


def stranger(name: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(PATIENCE_S)
    sock.connect("\0" + name)
    return sock


@pytest.mark.parametrize(
    "data",
    [b"", b"\x05\0", struct.pack("<Q", 1 << 50), struct.pack("<Q", 3) + b"abc", b"GET / HTTP/1.1"],
    ids=["nothing", "half", "too long", "garbage", "another protocol"],
)
def test_nonsense_ends_a_connection_and_nothing_else(place: Place, data: bytes) -> None:
    """A hundred rounds: no file stays open, and others are served."""
    client = place.worker()
    planned(client)
    before = open_files()
    for _ in range(100):
        with stranger(place.name) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):  # Some of it was not even read.
                assert sock.recv(10) == b""
    wait_until_closed(before)
    taken(client, 10)
    client.close()


def test_workers_that_come_and_go_leave_no_file_open(place: Place) -> None:
    """A hundred that claim and vanish in the middle, without a word."""
    before = open_files()
    for _ in range(100):
        client = place.worker()
        planned(client)
        client.ask(ms.Claim(plan=PLAN.id), ms.Claimed, timeout_s=PATIENCE_S)
        client.close()
    wait_until_closed(before)
    assert place.node.share_memory.records() == []


def test_stranger_of_another_user_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could read the weights and overwrite them; root and our own user may come."""
    for user, is_let_in in ((os.getuid() + 1, False), (os.getuid(), True), (0, True)):
        said = Peer(pid=os.getpid(), uid=user)  # For the kernel.
        monkeypatch.setattr(service_module, "peer_of", lambda _, said=said: said)
        client = place.worker()
        if is_let_in:
            planned(client)
        else:
            with pytest.raises(Unavailable, match="has gone"):
                client.ask(ms.GetStatus(), ms.Status, timeout_s=PATIENCE_S)
        client.close()


def test_keeper_without_a_free_descriptor_is_not_deaf_afterwards(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers are let in as soon as there is one."""
    monkeypatch.setattr(service_module, "ACCEPT_PAUSE_S", 0.0)
    accept: Callable[[socket.socket], tuple[socket.socket, object]] = socket.socket.accept
    left = [3]

    def failing(listener: socket.socket) -> tuple[socket.socket, object]:
        if left[0]:
            left[0] -= 1
            raise OSError(24, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", failing)
    first, second = place.worker(), place.worker()  # The first wakes what waits already.
    for client in (first, second):
        planned(client)
        client.close()
    assert left == [0]


def test_notes_are_told_to_who_asks_first(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once."""
    monkeypatch.setattr(saver_module, "GIVE_UP_S", 0.0)
    client = place.worker()
    planned(client, a_plan(0, 2))
    taken(client, 10, a_plan(0, 2))
    place.node.saver.wait_idle(PATIENCE_S)
    said = [client.ask(ms.GetStatus(), ms.Status, timeout_s=PATIENCE_S).notes for _ in range(3)]
    assert [len(each) for each in said] == [1, 0, 0]
    client.close()


def test_snapshot_that_is_held_in_memory_only_is_never_uploaded(place: Place) -> None:
    """A restore finds it there; storage gets what was to be uploaded, beside newer ones."""
    worker = place.worker()
    planned(worker, replace(PLAN, buffers=3))
    known: list[SharedMemory] = []
    taken(worker, 10, known=known, saving=ms.Saving.NONE)
    taken(worker, 11, known=known, saving=ms.Saving.PINNED)
    for step in range(12, 20):
        taken(worker, step, known=known, saving=ms.Saving.NONE)
    question = ms.WaitDurable(snapshot=a_snapshot(11), timeout_s=PATIENCE_S)
    assert worker.ask(question, ms.Durability).is_durable
    held = worker.ask(ms.List(), ms.Listed).held
    newest = max(held, key=lambda each: each.snapshot)
    assert newest.snapshot == a_snapshot(19) and not newest.is_saved
    assert [each.snapshot.step for each in committed(place.node.bucket)] == [11]
    assert not place.node.saver.is_busy


def test_what_a_worker_told_last_is_saved_though_the_keeper_is_to_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script may end right after its last save, before any thread here has read of it."""
    is_read, may_go_on = Event(), Event()
    take = Service._take

    def late(self: Service, worker: int, told: ms.SaveSnapshot) -> None:
        is_read.set()
        assert may_go_on.wait(PATIENCE_S)
        take(self, worker, told)

    monkeypatch.setattr(Service, "_take", late)
    client = place.worker()
    planned(client)
    said, memory = client.ask_memory(ms.Claim(plan=PLAN.id), ms.Claimed)
    assert memory is not None
    memory.view[:] = b"\x0a" * memory.size
    made = a_snapshot(10)
    client.send(
        ms.SaveSnapshot(
            plan=PLAN.id, buffer=said.buffer, snapshot=made, epoch=0, world_size=1, skeleton="{}"
        )
    )
    client.close()
    assert is_read.wait(PATIENCE_S)
    sender = MirrorSender(job="job", uid="uid")
    kept = KeeperParts(service=place.service, saver=place.node.saver, sender=sender)
    with ThreadPoolExecutor(1) as thread:
        closing = thread.submit(kept.close, PATIENCE_S)
        with pytest.raises(TimeoutError):
            closing.result(0.1)
        may_go_on.set()
        assert closing.result(PATIENCE_S)
    assert [each.snapshot for each in committed(place.node.bucket)] == [made]


def test_worker_hears_that_its_next_snapshot_waits_for_an_upload(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no memory beside it, and the upload before was given up; why, it hears once."""
    client, known = place.worker(), list[SharedMemory]()
    plan = replace(PLAN, buffers=BUFFERS + 1)
    place.gate._end = ".bin"  # Storage takes no bytes for now.

    def standing() -> ms.Status:
        return client.ask(ms.GetStatus(), ms.Status, timeout_s=PATIENCE_S)

    def no_memory(size: int) -> SharedMemory:
        raise EnvironmentProblem("there is none")

    planned(client, plan)
    taken(client, 10, plan, known, ms.Saving.PINNED)
    taken(client, 11, plan, known, ms.Saving.NONE)
    monkeypatch.setattr(SharedMemory, "new", no_memory)
    taken(client, 12, plan, known, ms.Saving.NONE)
    taken(client, 13, plan, known, ms.Saving.PINNED)
    assert not standing().awaits_upload
    taken(client, 14, plan, known, ms.Saving.NONE)
    first, second = standing(), standing()
    assert first.awaits_upload and second.awaits_upload
    assert place.service.metrics._values["elasticd_checkpoint_snapshots_held_up"] == 1.0
    assert ["third buffer" in note for note in first.notes] == [True] and second.notes == ()
    place.gate.opened.set()
    until(lambda: not standing().awaits_upload, lambda: "it is not done")
    assert place.service.metrics._values["elasticd_checkpoint_snapshots_held_up"] == 0.0
    until(lambda: standing().durable_step == 13, lambda: standing().durable_step)
