"""What nonsense, storms and want can do to the agent's socket: end a connection, no more."""

import os
import random
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from queue import Queue

import pytest

from elasticd.channel.wire import pack
from elasticd.channel.worker import Attached, Dump, Left, Stacks
from elasticd.records.ids import Life
from elasticd_agent.liveness import worker_sockets
from elasticd_agent.liveness.worker_sockets import WorkerSockets
from tests.fixtures.attached import (
    HELLO,
    ME,
    WAIT_S,
    Said,
    attach,
    beat,
    connect,
    ended_well,
    forked,
    is_ended,
)


@pytest.fixture
def said() -> Said:
    return Queue()


@pytest.fixture
def agent(said: Said) -> Iterator[WorkerSockets]:
    """Its socket, which knows nobody yet."""
    agent = WorkerSockets(Life("a1b2"), lambda pid, message: said.put((pid, message)))
    yield agent
    assert agent._thread.is_alive() or agent._is_closing
    agent.close()
    agent._thread.join(WAIT_S)  # It waits for the thread itself, but not for ever.
    assert not agent._thread.is_alive()


DEEP = b"[" * 200_000
NONSENSE = [
    b"\n",
    b"{}\n",
    b"[]\n",
    b"null\n",
    b"\xff\xfe\0\n",
    DEEP + b"\n",
    b'["Beat", ' + DEEP + b"]\n",
    b'["Beat", {"generation": 1, "step": 1, "step_s": ' + b"9" * 400 + b"}]\n",
    b'["Left", {"step": ' + b"9" * 5000 + b"}]\n",
    b'["Left", {"step": "1"}]\n',
    b'["Left", {}]\n',
    b'["Enter", {}]\n',
    b'[["Left"], {"step": 1}]\n',
    b'["Stacks", {"text": 5}]\n',
    b"x" * (worker_sockets.LINE_LIMIT_BYTES + 100),
    b'["Stacks", {"text": "' + b"x" * worker_sockets.LINE_LIMIT_BYTES + b'"}]\n',
]


@pytest.mark.parametrize("nonsense", NONSENSE, ids=range(len(NONSENSE)))
@pytest.mark.parametrize("is_attached", [True, False])
def test_nonsense_ends_the_connection_and_nothing_else(
    agent: WorkerSockets, said: Said, nonsense: bytes, is_attached: bool
) -> None:
    """Of a worker that was attached the end is told; the next connection is served."""
    agent.allow(ME)
    sock = attach(agent, said) if is_attached else connect(agent)
    with suppress(OSError):
        sock.sendall(nonsense)
    assert is_ended(sock)
    if is_attached:
        assert said.get(timeout=WAIT_S) == (ME, None)
    attach(agent, said)


@pytest.mark.parametrize("first", [pack(beat()), pack(Left(step=1)), pack(Stacks(text=""))])
def test_attached_comes_first(agent: WorkerSockets, said: Said, first: bytes) -> None:
    """Nothing is heard of who does not say it."""
    agent.allow(ME)
    sock = connect(agent)
    sock.sendall(first + HELLO)
    assert is_ended(sock)
    assert said.empty()


def test_attached_comes_once(agent: WorkerSockets, said: Said) -> None:
    """A second one is no message."""
    sock = attach(agent, said)
    sock.sendall(HELLO)
    assert is_ended(sock)
    assert said.get(timeout=WAIT_S) == (ME, None)


@pytest.mark.parametrize("seed", range(5))
def test_fuzz_ends_nothing_and_leaves_nothing(agent: WorkerSockets, said: Said, seed: int) -> None:
    """Messages cut, doubled, mixed and spoilt, in pieces, over many connections."""
    chance = random.Random(seed)
    agent.allow(ME)
    good = [HELLO, pack(beat(3)), pack(Left(step=1)), pack(Stacks(text="a\nb" * 50))]
    for _ in range(60):
        sock = connect(agent)
        data = bytearray(HELLO if chance.random() < 0.8 else b"")
        for _ in range(chance.randrange(1, 20)):
            line = bytearray(chance.choice(good))
            for _ in range(chance.choice([0, 0, 0, 1, 5])):
                line[chance.randrange(len(line))] = chance.randrange(256)
            data += line[: chance.choice([len(line), chance.randrange(len(line) + 1)])]
        with suppress(OSError):
            while data:
                size = chance.randrange(1, 400)
                sock.sendall(data[:size])
                del data[:size]
        if chance.random() < 0.5:
            sock.shutdown(socket.SHUT_WR)
        if chance.random() < 0.3:
            agent.send(ME, Dump())
        sock.close()
    attached = connect(agent)
    attached.sendall(HELLO + pack(Left(step=424242)))
    while said.get(timeout=WAIT_S) != (ME, Left(step=424242)):
        pass
    assert len(agent._open) == 1, f"seed {seed}"
    assert len(agent._selector) == 1
    assert not agent._strangers


def test_messages_alternate_between_attached_and_end(agent: WorkerSockets, said: Said) -> None:
    """Whoever keeps account sees each connection begin and end, also in a storm of them."""
    agent.allow(ME)
    for _ in range(300):
        with connect(agent) as sock, suppress(OSError):
            sock.sendall(HELLO + pack(beat()))
    attached = connect(agent)
    attached.sendall(HELLO + pack(Left(step=1)))
    is_attached = False
    while True:
        _, message = said.get(timeout=WAIT_S)
        if isinstance(message, Attached) or message is None:
            assert is_attached == (message is None)
            is_attached = not is_attached
        else:
            assert is_attached
        if message == Left(step=1):
            return


def test_lack_of_descriptors_passes() -> None:
    """The connection waits until there is one; the thread does not spin meanwhile.

    In a process of its own: a thread that an earlier test left would give a descriptor back.
    """
    assert ended_well(forked(waits_for_a_descriptor))


def waits_for_a_descriptor() -> bool:
    said: Said = Queue()
    agent = WorkerSockets(Life("a1b2"), lambda pid, message: said.put((pid, message)))
    me = os.getpid()
    agent.allow(me)
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(WAIT_S)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    fillers = []
    with suppress(OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        while True:
            fillers.append(os.dup(0))
    assert agent._thread.ident is not None
    clock = time.pthread_getcpuclockid(agent._thread.ident)
    used_s = time.clock_gettime(clock)
    sock.connect("\0" + agent.name)
    sock.sendall(pack(Attached(pid=me)))
    time.sleep(0.3)
    is_patient = said.empty() and time.clock_gettime(clock) - used_s < 0.15
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for filler in fillers:
        os.close(filler)
    is_heard = said.get(timeout=WAIT_S) == (me, Attached(pid=me))
    agent.close()
    agent._thread.join(WAIT_S)
    return is_patient and is_heard and not agent._thread.is_alive()
