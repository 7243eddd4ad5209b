"""Messages with open files over a real socket, and what is none."""

import array
import os
import socket
import struct
from collections.abc import Iterator
from threading import Thread

import pytest

from elasticd.channel.wire import pack, unpack
from elasticd.errors import InvariantBroken
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.wire import line as line_module
from elasticd.keeper.wire import message as ms
from elasticd.keeper.wire.line import FILES_LIMIT, KeeperConnection
from tests.fixtures.open_files import open_files, wait_until_closed
from tests.fixtures.patience import patience_s

LIMIT_S = patience_s(10.0)


@pytest.fixture
def ends() -> Iterator[tuple[KeeperConnection, KeeperConnection]]:
    one, other = socket.socketpair()
    one.settimeout(LIMIT_S)
    other.settimeout(LIMIT_S)
    yield KeeperConnection(one, ms.QUESTIONS), KeeperConnection(other, ms.ANSWERS)
    one.close()
    other.close()


def sent_raw(line: KeeperConnection, data: bytes, files: tuple[int, ...] = ()) -> None:
    """Bytes that no `KeeperConnection` would send, with descriptors beside the first."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    line.socket.sendmsg([data], rights)


def test_message_arrives_with_its_files(ends: tuple[KeeperConnection, KeeperConnection]) -> None:
    """They are the very memory, under numbers of the receiver."""
    one, other = ends
    memories = [SharedMemory.new(10), SharedMemory.new(20)]
    memories[1].view[:3] = b"abc"
    one.send(ms.Shared(size=20), [each.file for each in memories])
    message, files = other.receive()
    assert message == ms.Shared(size=20)
    assert not set(files) & {each.file for each in memories}
    received = [SharedMemory(each) for each in files]
    assert [each.size for each in received] == [10, 20]
    assert bytes(received[1].view[:3]) == b"abc"
    assert not os.get_inheritable(received[0].file)


def test_message_longer_than_the_sockets_buffer_arrives(
    ends: tuple[KeeperConnection, KeeperConnection],
) -> None:
    """Its pieces are put together."""
    one, other = ends
    long = ms.Failed(kind="Damaged", why="x" * 3_000_000)
    sender = Thread(target=one.send, args=(long,))
    sender.start()
    assert other.receive() == (long, [])
    sender.join()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (struct.pack("<Q", 1 << 40), InvariantBroken),
        (struct.pack("<Q", line_module.MESSAGE_LIMIT_BYTES + 1), InvariantBroken),
        (struct.pack("<Q", 4) + b"\xff\xfe\0{", InvariantBroken),
        (struct.pack("<Q", 2) + b"[]", InvariantBroken),
        (struct.pack("<Q", 0), InvariantBroken),
        (struct.pack("<Q", 11) + b'["Nope",{}]', InvariantBroken),
        (struct.pack("<Q", 13) + b'["Shared",{}]', InvariantBroken),
        (struct.pack("<Q", 4000) + b"[" * 4000, InvariantBroken),
        (struct.pack("<Q", 50) + b"half", EOFError),
        (b"\x05\0\0", EOFError),
    ],
    ids=["huge", "above", "garbage", "empty", "nothing", "kind", "fields", "deep", "half", "head"],
)
def test_what_is_no_message_is_told_and_its_files_are_closed(data: bytes, error: type) -> None:
    """A hundred of each, with two files beside it; nothing is read into memory first."""
    before = open_files()
    memory = SharedMemory.new(10)
    for _ in range(100):
        one, other = socket.socketpair()
        sent_raw(KeeperConnection(one, {}), data, (memory.file, memory.file))
        one.close()
        with other, pytest.raises(error):
            KeeperConnection(other, ms.ANSWERS).receive()
    del memory
    wait_until_closed(before)


def test_peer_that_hangs_up_between_messages_is_told_from_trouble(
    ends: tuple[KeeperConnection, KeeperConnection],
) -> None:
    """That is how a worker ends; sending to it fails as the system says."""
    one, other = ends
    one.close()
    with pytest.raises(EOFError):
        other.receive()
    with pytest.raises(OSError, match="pipe"):
        other.send(ms.Done())
    one.close()


def test_silent_peer_is_given_up_in_the_sockets_time(
    ends: tuple[KeeperConnection, KeeperConnection],
) -> None:
    """Before a message and within one; the files that came are closed."""
    one, other = ends
    other.socket.settimeout(0.02)
    with pytest.raises(TimeoutError):
        other.receive()
    memory = SharedMemory.new(10)
    before = open_files()
    sent_raw(one, struct.pack("<Q", 50), (memory.file,))
    with pytest.raises(TimeoutError):
        other.receive()
    wait_until_closed(before)


def test_more_files_than_allowed_do_not_stay_open(
    ends: tuple[KeeperConnection, KeeperConnection],
) -> None:
    """The kernel closes what has no place."""
    one, other = ends
    memory = SharedMemory.new(10)
    before = open_files()
    one.send(ms.Done(), [memory.file] * (FILES_LIMIT + 5))
    _, files = other.receive()
    assert len(files) == FILES_LIMIT
    for each in files:
        os.close(each)
    wait_until_closed(before)


def test_message_goes_by_its_tag_on_the_wire() -> None:
    """Workers and keepers of other versions know these names."""
    assert sorted(ms.QUESTIONS) == [
        "Ask", "Await", "Claim", "Dropped", "Fetch", "Find", "HowFar", "Join", "List", "Map",
        "Meet", "Mirror", "More", "Open", "Plans", "Read", "Stream", "Taken",
    ]  # fmt: skip
    assert sorted(ms.ANSWERS) == [
        "Awaited", "Batch", "Claimed", "Done", "Failed", "Found", "Joined", "Listed", "Mapped",
        "Met", "Opened", "Progress", "Shared", "Standing",
    ]  # fmt: skip
    assert pack(ms.GetStatus()) == b'["Ask", {}]\n'
    assert unpack(b'["HowFar", {}]', ms.QUESTIONS) == ms.GetProgress()
