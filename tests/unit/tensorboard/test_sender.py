"""A worker's end of the connection: what is kept, what is sent, and that nothing is waited for."""

import secrets
import socket
from collections.abc import Iterator

import pytest

from elasticd.tensorboard import sender as module
from elasticd.tensorboard.message import Begin, Histograms, Message, Scalars, names_of, unpack
from elasticd.tensorboard.sender import LISTEN_S, NAMES_LIMIT, RETRY_S, Sender
from tests.fixtures.patience import patience_s


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Writer:
    """Listens as the agent does."""

    def __init__(self) -> None:
        self.name = f"elasticd-test-{secrets.token_hex(8)}"
        self.listener: socket.socket | None = None
        self.sock: socket.socket | None = None
        self.listen()

    def listen(self) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind("\0" + self.name)
        self.listener.listen(4)
        self.listener.settimeout(patience_s(5.0))

    def accept(self) -> None:
        assert self.listener is not None
        self.sock, _ = self.listener.accept()
        self.sock.settimeout(patience_s(5.0))

    def heard(self, *, is_all: bool = False) -> list[Message]:
        """What has come on the newest connection, or all to its end."""
        if self.sock is None:
            self.accept()
        assert self.sock is not None
        found = bytearray(self.sock.recv(1 << 20))
        while is_all and (more := self.sock.recv(1 << 20)):
            found += more
        return unpack(found)

    def close(self) -> None:
        for each in (self.listener, self.sock):
            if each is not None:
                each.close()
        self.listener = self.sock = None


@pytest.fixture
def writer() -> Iterator[Writer]:
    made = Writer()
    yield made
    made.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sender(writer: Writer, clock: Clock) -> Iterator[Sender]:
    made = Sender(writer.name, clock=clock)
    yield made
    made.end()


def steps(messages: list[Message]) -> list[int]:
    return [each.step for each in messages if isinstance(each, Scalars)]


def give(sender: Sender, *numbers: int) -> None:
    for step in numbers:
        sender.scalars(step, 1.0, ("loss",), [float(step)])


def test_rank_zero_sends_each_step(sender: Sender, writer: Writer) -> None:
    """Names, numbers and histograms, behind what generation it is."""
    sender.begin(3, 10, is_writer=True)
    sender.scalars(11, 5.0, ("loss", "größe"), [0.5, float("inf")])
    sender.histograms(11, 5.0, ("w",), [1.0] * 70)
    sender.poll()
    begin, scalars, histograms = writer.heard()
    assert begin == Begin(generation=3, step=10)
    assert isinstance(scalars, Scalars)
    assert (scalars.at_unix_s, scalars.step, tuple(scalars.values)) == (
        5.0,
        11,
        (0.5, float("inf")),
    )
    assert names_of(scalars.names) == ["loss", "größe"]
    assert isinstance(histograms, Histograms)
    assert (histograms.step, names_of(histograms.names), len(histograms.values)) == (11, ["w"], 70)


def test_new_rank_zero_sends_what_it_kept(sender: Sender, writer: Writer) -> None:
    """But for the steps that are void now."""
    sender.begin(1, 0, is_writer=False)
    give(sender, *range(1, 8))
    sender.end()
    sender.begin(2, 5, is_writer=True)
    give(sender, 6)
    sender.poll()
    assert steps(writer.heard()) == [1, 2, 3, 4, 5, 6]


def test_all_is_sent_again_to_a_writer_that_is_started_anew(
    sender: Sender, writer: Writer, clock: Clock
) -> None:
    """After a pause, and behind the generation."""
    sender.begin(1, 0, is_writer=True)
    give(sender, 1, 2)
    sender.poll()
    writer.heard()
    writer.close()
    give(sender, 3, 4)
    sender.poll()
    writer.listen()
    give(sender, 5)
    sender.poll()
    clock.now_s += RETRY_S
    assert sender.poll() == []
    assert steps(writer.heard()) == [1, 2, 3, 4, 5]


def test_what_was_sent_outlives_the_process(writer: Writer, clock: Clock) -> None:
    """It lies in the socket; and the end of the connection is heard."""
    sender = Sender(writer.name, clock=clock)
    sender.begin(1, 0, is_writer=True)
    give(sender, *range(1, 40))
    sender.poll()
    give(sender, *range(40, 50))
    sender.end()
    assert steps(writer.heard(is_all=True)) == list(range(1, 50))


@pytest.mark.parametrize("is_known", [False, True], ids=["broken", "known to be broken"])
def test_end_tries_again_at_once(sender: Sender, writer: Writer, is_known: bool) -> None:
    """Whoever ends has no second to wait for a writer that was started anew."""
    sender.begin(1, 0, is_writer=True)
    give(sender, 1, 2)
    sender.poll()
    writer.heard()
    writer.close()
    give(sender, 3)
    if is_known:
        sender.poll()
    writer.listen()
    give(sender, 4)
    sender.end()
    assert steps(writer.heard(is_all=True)) == [1, 2, 3, 4]


def test_restart_mode_begins_with_its_first_step(sender: Sender, writer: Writer) -> None:
    """Nothing is known before."""
    sender.begin(4, -1, is_writer=True)
    assert sender.poll() == []
    give(sender, 71, 72)
    sender.poll()
    assert writer.heard()[0] == Begin(generation=4, step=70)


def test_writer_that_reads_nothing_slows_no_step(sender: Sender, writer: Writer) -> None:
    """The oldest steps are dropped, with one warning; what is left is sent whole."""
    module_limit = module.KEPT_BYTES
    told: list[str] = []
    names = tuple(f"name-{index}" for index in range(500))
    sender.begin(1, 0, is_writer=True)
    for step in range(1, 1500):
        sender.scalars(step, 1.0, names, [float(step)] * 500)
        told += sender.poll()
    assert sender.dropped > 0
    assert sender._kept_bytes <= module_limit
    (sentence,) = told
    assert "does not read" in sentence
    writer.accept()
    found: list[int] = []
    heard = bytearray()
    assert writer.sock is not None
    while not found or found[-1] < 1499:
        sender.poll()
        heard += writer.sock.recv(1 << 20)
        found += steps(unpack(heard))
    assert found == sorted(set(found))
    assert sender.poll() == []


def test_ten_thousand_names_are_no_more_than_the_limit(sender: Sender, writer: Writer) -> None:
    """Those that came first, with one warning; a name that is too long is left out too."""
    sender.begin(1, 0, is_writer=True)
    many = tuple(f"n{index}" for index in range(10_000))
    sender.scalars(1, 1.0, many, [float(index) for index in range(10_000)])
    sender.scalars(2, 1.0, ("n5", "other", "x" * 1000), [5.0, 6.0, 7.0])
    sender.scalars(3, 1.0, ("other",), [6.0])
    (told,) = sender.poll()
    assert str(NAMES_LIMIT) in told
    _, first, second = writer.heard()
    assert isinstance(first, Scalars) and isinstance(second, Scalars)
    assert len(first.values) == NAMES_LIMIT == len(names_of(first.names))
    assert (names_of(second.names), tuple(second.values)) == (["n5"], (5.0,))


def test_sentence_of_the_writer_is_told_once(sender: Sender, writer: Writer, clock: Clock) -> None:
    """Also one that comes in two pieces; it is asked for it once a second."""
    sender.begin(1, 0, is_writer=True)
    writer.accept()
    assert writer.sock is not None
    writer.sock.send(b"cannot be wri")
    assert sender.poll() == []
    writer.sock.send("tten: größe\n".encode())
    assert sender.poll() == []
    clock.now_s += LISTEN_S
    assert sender.poll() == ["cannot be written: größe"]
    clock.now_s += LISTEN_S
    assert sender.poll() == []


@pytest.mark.parametrize(
    "heard", [b"\xff" * 64, b"\0\0\0\0\x09", b"\x02\0\0\0\x01ab", b"\x05\0\0\0\x02abcde"]
)
def test_nonsense_is_no_message(heard: bytes) -> None:
    """An error that says so, and no other."""
    with pytest.raises(ValueError, match="frame"):
        unpack(bytearray(heard))
