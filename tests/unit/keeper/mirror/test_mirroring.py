"""A share that no other node has is held by a second one: two keepers over loopback."""

import contextlib
import os
import secrets
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest

from elasticd.channel.wire import pack
from elasticd.checkpoint.commit.committer import CommitOutcome
from elasticd.checkpoint.format.checksum import block_sums, text_sum
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Piece
from elasticd.checkpoint.format.share_layout import Layout
from elasticd.keeper import saver as saver_module
from elasticd.keeper.assembly import KeeperSettings, build_keeper
from elasticd.keeper.client import Client
from elasticd.keeper.memory import received_shares as received_module
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.memory.share_memory import ShareMemory
from elasticd.keeper.memory.share_record import held_of
from elasticd.keeper.mirror import connection as connection_module
from elasticd.keeper.mirror import protocol as om
from elasticd.keeper.mirror import queue as mirror_module
from elasticd.keeper.mirror import sender as sender_module
from elasticd.keeper.mirror.connection import MirrorConnection, client_handshake
from elasticd.keeper.mirror.receiver import MirrorReceiver
from elasticd.keeper.wire import message as ms
from elasticd.keeper.wire.message import KeeperAddress
from tests.fixtures.cluster import until
from tests.fixtures.patience import patience_s
from tests.fixtures.ports import free_port
from tests.unit.keeper.mirror.pair import (
    HOST,
    WORKER,
    Far,
    Near,
    Proxy,
    content,
    seconds,
    steps,
    wait_steps,
)
from tests.unit.keeper.site import PATIENCE_S, a_plan, a_snapshot, memfds

PLAN = replace(a_plan(1, 2), is_alone=True)
SIZE = PLAN.layout.size
GREETING_BYTES, LENGTH_BYTES = 64, 8
SHORT_S = patience_s(1.0)


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(mirror_module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(mirror_module, "LAST_PAUSE_S", 0.05)
    yield
    while Near.made:  # Their threads would try for ever, and print that into other tests.
        Near.made.pop().sender.close()


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    node = Far(tmp_path)
    yield node
    node.saver.close(0.0)


@pytest.fixture
def near(tmp_path: Path) -> Iterator[Near]:
    node = Near(tmp_path, PLAN)
    yield node
    node.saver.close(0.0)


def an_offer() -> om.Offer:
    return om.Offer(
        job="job", uid="uid", snapshot=a_snapshot(), share=1, shares=2, epoch=3,
        layout=PLAN.layout, header=None,
    )  # fmt: skip


def test_keeper_that_has_ended_sends_and_says_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its thread ends."""
    near = Near(tmp_path, PLAN)
    with socket.create_server((HOST, 0)) as closed:
        port = closed.getsockname()[1]
    near.sender.close()
    near.sender.use(WORKER, KeeperAddress(host=HOST, port=port, token=""))
    near.snapshot(a_snapshot(1))
    until(lambda: not any(thread.name == "mirror" for thread in enumerate_threads()), str)
    assert near.counts.failures == 0 and not near.notes
    assert capfd.readouterr().out == ""


def test_share_arrives_bit_for_bit(near: Near, far: Far) -> None:
    """It is listed as the second holder's, and can be mapped by a worker there."""
    near.sender.use(WORKER, far.address)
    near.snapshot(a_snapshot(10))
    wait_steps(far, 10)
    (record,) = seconds(far)
    held = held_of(record)
    assert (held.snapshot, held.share, held.shares, held.holder) == (a_snapshot(10), 1, 2, 1)
    assert far.share_memory.find(held) is record
    assert record.share.layout == PLAN.layout
    until(lambda: near.counts.steps == [10], lambda: near.counts.steps)
    assert (near.counts.sent_bytes, near.counts.failures, near.notes) == (SIZE, 0, [])


def test_header_comes_along_with_the_first_share(tmp_path: Path, far: Far) -> None:
    """Without it nobody could put the state together again."""
    near = Near(tmp_path, replace(a_plan(0, 2), is_alone=True))
    record = near.snapshot(a_snapshot(10))
    record.share = replace(record.share, header=replace(record.share.header, epoch=0))  # type: ignore[type-var]
    near.sender.use(WORKER, far.address)
    wait_steps(far, 10)
    assert seconds(far)[0].header == record.header is not None
    near.saver.close(0.0)


def test_what_was_taken_before_the_door_was_known_is_sent(near: Near, far: Far) -> None:
    """The newest of it."""
    near.snapshot(a_snapshot(8))
    near.snapshot(a_snapshot(10))
    near.sender.use(WORKER, far.address)
    wait_steps(far, 10)


def test_two_are_kept_and_memory_is_used_again(near: Near, far: Far) -> None:
    """The older whole one makes way only when a newer one comes."""
    near.sender.use(WORKER, far.address)
    before = memfds()
    for step in (2, 4, 6, 8, 10):
        near.snapshot(a_snapshot(step))
        until(lambda: step in near.counts.steps, lambda: near.counts.steps)  # noqa: B023
    assert steps(far) == [8, 10]
    # Two here, and two of the sender's; one that it sends from is let go a moment after the step.
    until(lambda: len(memfds() - before) == 4, lambda: memfds() - before)


def test_share_of_a_node_that_is_gone_is_uploaded_by_the_next(
    tmp_path: Path, far: Far, near: Near, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first holder uploaded nothing; the checkpoint is whole all the same."""
    monkeypatch.setattr(saver_module, "TURN_S", 0.05)
    far.committer.open(1, 0)
    near.sender.use(WORKER, far.address)
    near.snapshot(a_snapshot(10))
    wait_steps(far, 10)
    far.take(a_snapshot(10), a_plan(0, 2))
    job = far.saver.wait(a_snapshot(10), PATIENCE_S)
    assert job is not None and job.outcome is CommitOutcome.COMMITTED, job and job.why


# --- a network and peers that are not as they should be -----------------------------------------


def test_wrong_token_is_shut_out(near: Near, far: Far, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is read of what it sends, and the sender learns no more than that."""
    wrong = replace(far.address, token="0" * 64)
    with pytest.raises((EOFError, OSError)):
        client_handshake(socket.create_connection((wrong.host, wrong.port)), wrong.token)
    near.sender.use(WORKER, wrong)
    near.snapshot(a_snapshot(10))
    until(lambda: near.counts.failures >= 2, lambda: near.counts.failures)
    assert steps(far) == []
    assert far.address.token not in caplog.text and far.address.token not in repr(far.address)
    assert len(near.notes) == 1 and "no second copy" in near.notes[0]


def test_token_is_never_sent(far: Far) -> None:
    """Neither of the two proofs is the other's, or that of another time."""
    heard = []
    for _ in range(2):
        with socket.create_connection((HOST, far.address.port)) as sock:
            connection = _Tap(sock)
            client_handshake(connection, far.address.token)  # type: ignore[arg-type]
            heard.append(bytes(connection.said))
    assert far.address.token.encode() not in b"".join(heard)
    assert bytes.fromhex(far.address.token) not in b"".join(heard)
    assert heard[0] != heard[1]


class _Tap:
    """A socket whose bytes are written down, in both directions."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self.said = sock, bytearray()
        self.settimeout = sock.settimeout

    def sendall(self, data: bytes) -> None:
        self.said += data
        self._sock.sendall(data)

    def recv_into(self, place: memoryview) -> int:
        count = self._sock.recv_into(place)
        self.said += place[:count]
        return count


def test_who_took_the_port_of_a_keeper_gets_nothing(near: Near) -> None:
    """It cannot prove that it knows the token, so no byte of the state is sent to it."""
    heard = bytearray()
    over = Event()

    def serve(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(b"elasticd-keeper2" + bytes(32))
            with contextlib.suppress(OSError):
                heard.extend(sock.recv(4096))
                sock.sendall(bytes(32))
                while data := sock.recv(4096):
                    heard.extend(data)
        over.set()

    with socket.create_server((HOST, 0)) as listener:
        Thread(target=serve, args=(listener,), daemon=True).start()
        port = listener.getsockname()[1]
        near.snapshot(a_snapshot(10))
        near.sender.use(WORKER, KeeperAddress(host=HOST, port=port, token="1" * 64))
        assert over.wait(PATIENCE_S)
    assert len(heard) == 64


@pytest.mark.parametrize("text", [b"", b"GET / HTTP/1.1\r\n\r\n" * 9, os.urandom(4096)])
def test_strangers_are_hung_up_on(far: Far, text: bytes, near: Near) -> None:
    """And the keeper serves on."""
    with socket.create_connection((HOST, far.address.port), timeout=PATIENCE_S) as sock:
        sock.recv(48, socket.MSG_WAITALL)
        with contextlib.suppress(OSError):  # It may have hung up before the last byte was sent.
            sock.sendall(text)
            sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    near.sender.use(WORKER, far.address)
    near.snapshot(a_snapshot(10))
    wait_steps(far, 10)


def test_silent_stranger_is_hung_up_on(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs a thread for as long as a greeting may take."""
    monkeypatch.setattr(connection_module, "GREETING_LIMIT_S", 0.05)
    with socket.create_connection((HOST, far.address.port), timeout=PATIENCE_S) as sock:
        sock.recv(48, socket.MSG_WAITALL)
        assert sock.recv(1) == b""


HUGE = Layout(1 << 50, ((0, 1 << 50),), ())
MANY = Layout(1 << 45, tuple((start << 32, 1 << 32) for start in range(1 << 13)), ())
EMPTY = Layout(SIZE, (), ())
BEYOND = replace(PLAN.layout, pieces=(Piece(1, (0,), (SIZE,), 0, 1),))
NO_PART = replace(PLAN.layout, pieces=(Piece(1, (0,), (SIZE,), 7, 0),))
NEGATIVE = replace(PLAN.layout, pieces=(Piece(1, (0,), (SIZE,), 0, -1),))
OVERLAP = Layout(SIZE, ((0, SIZE), (0, SIZE)), ())
OUTSIDE = Layout(SIZE, ((0, SIZE + 1),), ())


@pytest.mark.parametrize(
    "fields",
    [
        {"layout": HUGE},
        {"layout": MANY},
        {"layout": EMPTY},
        {"layout": replace(PLAN.layout, size=-1)},
        {"layout": BEYOND},
        {"layout": NO_PART},
        {"layout": NEGATIVE},
        {"layout": OVERLAP},
        {"layout": OUTSIDE},
        {"share": 2},
        {"share": -1},
        {"share": 0},
        {"shares": 1 << 40},
        {"snapshot": Snapshot(run=1, generation=1, step=10**400)},
        {"uid": "another"},
        {"job": "another"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_absurd_offer_is_refused_before_memory_is_taken(
    far: Far, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever knows the token may have a bug."""
    monkeypatch.setattr(received_module, "_memory", lambda *_: pytest.fail("memory was taken"))
    connection = far.visit()
    connection.send(replace(an_offer(), **fields))
    assert isinstance(connection.receive(om.ANSWERS, om.ANSWER_LIMIT_BYTES), om.NotNow)
    assert steps(far) == []


def test_announced_length_beyond_the_limit_is_refused(far: Far) -> None:
    """Nothing is allocated for it."""
    connection = far.visit()
    connection._sock.sendall(struct.pack("<Q", 1 << 62))
    said = connection.receive(om.ANSWERS, om.ANSWER_LIMIT_BYTES)
    assert isinstance(said, om.NotNow) and "is announced" in said.why


def test_what_is_no_offer_is_refused(far: Far) -> None:
    """A message of another kind."""
    connection = far.visit()
    connection.send(om.Sealed(sum=""))
    assert isinstance(connection.receive(om.ANSWERS, om.ANSWER_LIMIT_BYTES), om.NotNow)


def test_flipped_bit_is_not_held(far: Far) -> None:
    """What TCP's own sum overlooked."""
    data = bytearray(content(a_snapshot(10), SIZE))
    connection = far.visit()
    connection.send(an_offer())
    assert isinstance(connection.receive(om.ANSWERS, om.ANSWER_LIMIT_BYTES), om.Wanted)
    total = text_sum("".join(block_sums(memoryview(data))).encode())
    data[3] ^= 4
    connection.send_block(memoryview(data))
    connection.send(om.Sealed(sum=total))
    assert isinstance(connection.receive(om.ANSWERS, om.ANSWER_LIMIT_BYTES), om.NotNow)
    assert steps(far) == []


def test_connection_cut_in_the_middle_is_tried_again(near: Near, far: Far) -> None:
    """What came is dropped; the one that was whole before stays."""
    near.sender.use(WORKER, far.address)
    record = near.snapshot(a_snapshot(10))
    wait_steps(far, 10)
    head = GREETING_BYTES + LENGTH_BYTES + len(pack(near.sender._offer(record)))
    cut = Proxy(far.address, head + SIZE // 2, lambda: None)
    near.sender.use(WORKER, cut.address)
    near.snapshot(a_snapshot(12))
    assert cut.reached.wait(PATIENCE_S)
    until(lambda: near.counts.failures, lambda: near.counts.failures)
    assert steps(far) == [10]
    near.sender.use(WORKER, far.address)
    wait_steps(far, 10, 12)


def test_without_room_it_is_refused_and_said_once(
    near: Near, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this node's own workers will claim counts as taken."""
    monkeypatch.setattr(received_module, "room_bytes", lambda: 2 * SIZE)
    far.share_memory.plan(WORKER, [a_plan(0, 2)])
    near.sender.use(WORKER, far.address)
    near.snapshot(a_snapshot(10))
    until(lambda: near.counts.failures >= 3, lambda: near.counts.failures)
    assert steps(far) == [] and len(near.notes) == 1
    assert "no memory" in near.notes[0]
    monkeypatch.setattr(received_module, "room_bytes", lambda: 3 * SIZE)
    wait_steps(far, 10)


def test_memory_that_comes_slowly_does_not_cost_the_second_copy(
    near: Near, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a large share the next node's kernel takes longer than any message may."""
    monkeypatch.setattr(connection_module, "STEP_LIMIT_S", SHORT_S)
    monkeypatch.setattr(sender_module, "SLOWEST_BYTES_PER_S", SIZE / PATIENCE_S)
    taken = received_module._memory

    def slowly(size: int, owed_bytes: int) -> SharedMemory:
        Event().wait(2 * SHORT_S)
        return taken(size, owed_bytes)

    monkeypatch.setattr(received_module, "_memory", slowly)
    near.sender.use(WORKER, far.address)
    near.snapshot(a_snapshot(10))
    wait_steps(far, 10)


def test_host_that_is_gone_is_noticed_in_a_long_wait() -> None:
    """The kernel asks it, as often as the limit of a message allows."""
    with socket.socket() as sock:
        MirrorConnection(sock).watch()
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle_s, pause_s, count = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
    assert 0 < idle_s + count * pause_s <= connection_module.STEP_LIMIT_S


def test_newer_snapshot_supersedes_one_that_waits(near: Near, far: Far) -> None:
    """While one is on its way, the ones between it and the newest are never sent."""
    go_on = Event()
    slow = Proxy(far.address, 200, go_on.wait)
    near.sender.use(WORKER, slow.address)
    near.snapshot(a_snapshot(2))
    assert slow.reached.wait(PATIENCE_S)
    near.sender.use(WORKER, far.address)
    for step in (4, 6, 8):
        near.snapshot(a_snapshot(step))
    go_on.set()
    wait_steps(far, 8)
    assert near.counts.steps in ([], [8])


def test_snapshot_whose_memory_was_given_away_is_not_sealed(near: Near, far: Far) -> None:
    """The next one was copied over it while it was sent."""
    record = near.snapshot(a_snapshot(10))
    record.is_wanted = False
    near.sender.use(WORKER, far.address)
    near.snapshot(a_snapshot(12))
    wait_steps(far, 12)
    until(lambda: near.counts.steps == [12], lambda: near.counts.steps)


def test_memory_that_is_given_away_at_the_last_moment_is_not_sealed(
    near: Near, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bytes are sent, and nobody knows what of which snapshot they are."""
    send_block = MirrorConnection.send_block

    def given_away(connection: MirrorConnection, block: memoryview) -> None:
        send_block(connection, block)
        record.is_wanted = False
        monkeypatch.undo()

    monkeypatch.setattr(MirrorConnection, "send_block", given_away)
    record = near.snapshot(a_snapshot(10))
    near.sender.use(WORKER, far.address)
    until(lambda: near.counts.failures, lambda: near.counts.steps)
    near.sender.finish(PATIENCE_S)
    assert (steps(far), near.counts.steps) == ([], [])


def test_receiver_that_was_started_again_is_reached_by_its_new_door(
    near: Near, far: Far, tmp_path: Path
) -> None:
    """What the first had is lost; the newest snapshot is sent to the second at once."""
    gone = KeeperAddress(host=HOST, port=free_port(), token=far.address.token)
    near.sender.use(WORKER, gone)
    near.snapshot(a_snapshot(10))
    until(lambda: near.counts.failures, lambda: near.counts.failures)
    anew = Far(tmp_path)
    near.sender.use(WORKER, anew.address)
    wait_steps(anew, 10)
    until(lambda: near.counts.steps == [10], lambda: near.counts.steps)
    anew.saver.close(0.0)


def test_worker_that_died_is_sent_for_all_the_same(near: Near, far: Far) -> None:
    """What it had finished is whole, and may be needed just now."""
    far.share_memory.received.claim(
        a_snapshot(8), 1, 2, SIZE, 0
    )  # Busy: another is being received.
    near.sender.use(WORKER, far.address)
    near.snapshot(a_snapshot(10))
    near.share_memory.leave(WORKER)
    near.sender.leave(WORKER)
    until(lambda: near.counts.failures, lambda: near.counts.failures)
    far.share_memory.received.protect()
    wait_steps(far, 10)


def test_no_port_is_open_before_somebody_asks(tmp_path: Path) -> None:
    """And none without an address, or with one that is not this machine's."""
    share_memory = ShareMemory()

    def receiver(host: str) -> MirrorReceiver:
        return MirrorReceiver(share_memory, lambda record: None, host=host, job="job", uid="uid")

    assert receiver(HOST)._address is None
    assert receiver("").address() is None
    assert receiver("203.0.113.9").address() is None


def test_upload_goes_on_while_a_peer_hangs(tmp_path: Path, far: Far) -> None:
    """The saver knows nothing of it, so no schedule depends on it."""
    stuck = Proxy(far.address, 200, Event().wait)
    near = Near(tmp_path, PLAN)
    near.sender.use(WORKER, stuck.address)
    near.snapshot(a_snapshot(10))
    assert stuck.reached.wait(PATIENCE_S)
    assert not near.saver.is_busy
    near.saver.close(0.0)


# --- from worker to worker ----------------------------------------------------------------------


class Whole:
    """A keeper as the agent starts it, but in this process, and a worker of it."""

    def __init__(self, folder: Path) -> None:
        name = f"elasticd-test-{secrets.token_hex(8)}"
        self.kept = build_keeper(
            KeeperSettings(
                url=f"file://{folder}", job="job", uid="uid", socket=name, host=HOST, niceness=0
            ),
            {},
        )
        Thread(target=self.kept.service.listen, args=(name,), daemon=True).start()
        self.worker = Client(name)

    def close(self) -> None:
        self.worker.close()
        self.kept.close(0.0)


def test_workers_make_two_keepers_known_to_each_other(tmp_path: Path) -> None:
    """Over the sockets that workers use, down to the mapping on the other node; a part that others
    copy is not sent."""
    (tmp_path / "steps").touch()  # Nothing can be uploaded.
    one, other = Whole(tmp_path), Whole(tmp_path)
    near, far = one.worker, other.worker
    spare = replace(a_plan(0, 2), id=77)
    near.ask(ms.Plans(plans=(PLAN, spare)), ms.Done, timeout_s=PATIENCE_S)
    for plan in (spare, PLAN):
        said, memory = near.ask_memory(ms.Claim(plan=plan.id), ms.Claimed, timeout_s=PATIENCE_S)
        assert memory is not None
        memory.view[:] = content(a_snapshot(), SIZE)
        question = ms.SaveSnapshot(
            plan=plan.id, buffer=said.buffer, snapshot=a_snapshot(), epoch=3, world_size=2,
            skeleton="{}",
        )  # fmt: skip
        near.ask(question, ms.Done, timeout_s=PATIENCE_S)
    address = far.ask(ms.GetAddress(), ms.Address, timeout_s=PATIENCE_S).door
    assert address is not None
    assert far.ask(ms.GetAddress(), ms.Address, timeout_s=PATIENCE_S).door == address
    near.send(ms.Mirror(door=address))
    held = until(
        lambda: far.ask(ms.List(), ms.Listed, timeout_s=PATIENCE_S).held, lambda: "nothing came"
    )
    assert [(each.share, each.shares, each.holder) for each in held] == [(1, 2, 1)]
    mapped, memory = far.ask_memory(ms.Map(held=held[0]), ms.Mapped, timeout_s=PATIENCE_S)
    assert memory is not None and bytes(memory.view) == content(a_snapshot(), SIZE)
    assert (mapped.layout, mapped.epoch) == (PLAN.layout, 3)
    one.close()
    other.close()


def test_keeper_that_ends_sends_what_waits_first(near: Near, far: Far) -> None:
    """Its node leaves with the newest snapshot, and the storage is away."""
    go_on = Event()
    slow = Proxy(far.address, 200, go_on.wait)
    near.sender.use(WORKER, slow.address)
    near.snapshot(a_snapshot(2))
    assert slow.reached.wait(PATIENCE_S)
    near.sender.use(WORKER, far.address)
    near.snapshot(a_snapshot(4))
    near.sender.finish(0.01)
    assert steps(far) == []
    go_on.set()
    near.sender.finish(PATIENCE_S)
    assert steps(far) == [4]


@pytest.mark.parametrize("saving", list(ms.Saving))
def test_next_keeper_knows_what_is_uploaded(near: Near, far: Far, saving: ms.Saving) -> None:
    """What is held in memory only is not its business when the node is gone."""
    near.sender.use(WORKER, far.address)
    record = near.snapshot(a_snapshot(10), saving)
    # It is counted here once the next keeper has answered; it holds the share a moment before that.
    until(lambda: near.counts.steps == [10], lambda: near.counts.steps)
    (second,) = seconds(far)
    assert record.saving is saving and second.saving is saving
    assert far.saver.is_known(a_snapshot(10)) is (saving is not ms.Saving.NONE)


def test_held_share_is_uploaded_by_the_next_keeper_when_that_is_wanted(
    near: Near, far: Far
) -> None:
    """The last state is uploaded though it was sent already, as one of memory only."""
    near.sender.use(WORKER, far.address)
    near.snapshot(a_snapshot(10), ms.Saving.NONE)
    until(lambda: near.counts.steps == [10], lambda: near.counts.steps)
    assert not far.saver.is_known(a_snapshot(10))
    near.snapshot(a_snapshot(10), ms.Saving.USUAL)
    until(lambda: far.saver.is_known(a_snapshot(10)), str)
    assert near.sender.is_sending is False or steps(far) == [10]


def test_sender_says_while_something_is_on_its_way(near: Near, far: Far) -> None:
    """Until the next keeper has it, or the try has failed."""
    gate = Event()
    proxy = Proxy(far.address, GREETING_BYTES + LENGTH_BYTES, gate.wait)
    near.sender.use(WORKER, proxy.address)
    assert not near.sender.is_sending
    near.snapshot(a_snapshot(10))
    assert proxy.reached.wait(PATIENCE_S)
    assert near.sender.is_sending
    gate.set()
    until(lambda: not near.sender.is_sending, str)
    assert near.counts.failures >= 1
