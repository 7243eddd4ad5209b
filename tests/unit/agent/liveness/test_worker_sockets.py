"""The agent's socket for its workers: who is heard, and what they are told."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from queue import Queue
from threading import Thread

import pytest

from elasticd.channel.wire import pack
from elasticd.channel.worker import Attached, Beat, Dump, Enter, FromWorker, Leave
from elasticd.records.ids import Generation, Life, NodeId, Rank
from elasticd.records.member import Peer, StoreAddress
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


def enter() -> Enter:
    return Enter(
        generation=Generation(1),
        rank=Rank(0),
        size=2000,
        local_rank=0,
        local_size=1,
        node_rank=0,
        nodes=2000,
        node="n1",
        store=StoreAddress(host="10.0.0.1", port=1),
        agents=tuple(
            Peer(node=NodeId(f"n{i}"), life=Life("l"), address="10.0.0.1", port=i)
            for i in range(2000)
        ),
        reason="",
    )


def test_worker_is_heard_in_order_and_to_its_end(agent: WorkerSockets, said: Said) -> None:
    """Attached, what it says, None."""
    sock = attach(agent, said)
    lines = b"".join(pack(beat(step)) for step in range(500))
    for start in range(0, len(lines), 777):  # Lines do not arrive as they were written.
        sock.sendall(lines[start : start + 777])
    sock.close()
    for step in range(500):
        assert said.get(timeout=WAIT_S) == (ME, beat(step))
    assert said.get(timeout=WAIT_S) == (ME, None)


def test_worker_is_told(agent: WorkerSockets, said: Said) -> None:
    """A message a line, in order."""
    sock = attach(agent, said)
    agent.send(ME, Dump())
    agent.send(ME, Leave(at_step=7))
    with sock.makefile("rb") as lines:
        assert [lines.readline(), lines.readline()] == [pack(Dump()), pack(Leave(at_step=7))]


def test_worker_that_was_quicker_than_the_pools_word_is_heard(
    agent: WorkerSockets, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It connected and spoke before anybody said that it exists."""
    monkeypatch.setattr(worker_sockets, "STRANGER_TIMEOUT_S", WAIT_S)
    sock = connect(agent)
    sock.sendall(HELLO + pack(beat()))
    time.sleep(0.1)
    assert said.empty()
    agent.allow(ME)
    assert said.get(timeout=WAIT_S) == (ME, Attached(pid=ME))
    assert said.get(timeout=WAIT_S) == (ME, beat())


def test_stranger_is_closed_unheard(
    agent: WorkerSockets, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it says."""
    monkeypatch.setattr(worker_sockets, "STRANGER_TIMEOUT_S", 0.1)
    sock = connect(agent)
    with suppress(BrokenPipeError):  # It may be closed before it has said a word.
        sock.sendall(HELLO + pack(beat()))
    assert is_ended(sock)
    assert said.empty()


def test_child_of_a_worker_does_not_pass_for_it(
    agent: WorkerSockets, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader's process that says the worker's number; the worker itself is heard on."""
    monkeypatch.setattr(worker_sockets, "STRANGER_TIMEOUT_S", 0.1)
    sock = attach(agent, said)

    def play() -> bool:
        child = connect(agent)
        with suppress(BrokenPipeError):
            child.sendall(HELLO)
        return is_ended(child)

    assert ended_well(forked(play))
    assert said.empty()
    sock.sendall(pack(beat()))
    assert said.get(timeout=WAIT_S) == (ME, beat())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_another_user_is_closed_at_once(agent: WorkerSockets, said: Said) -> None:
    """Even with a worker's number: the kernel names the user."""
    ready_out, ready_in = os.pipe()

    def play() -> bool:
        os.setuid(65534)
        os.read(ready_out, 1)
        sock = connect(agent)
        with suppress(OSError):
            sock.sendall(HELLO)
        return is_ended(sock)

    pid = forked(play)
    agent.allow(pid)
    os.write(ready_in, b"w")
    assert ended_well(pid)
    assert said.empty()
    os.close(ready_out)
    os.close(ready_in)


def test_strangers_are_limited(
    agent: WorkerSockets, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that waited longest goes; the newest may be a worker."""
    monkeypatch.setattr(worker_sockets, "STRANGER_TIMEOUT_S", 1000.0)
    monkeypatch.setattr(worker_sockets, "STRANGERS_LIMIT", 3)
    connect_out, connect_in = os.pipe()
    connected_out, connected_in = os.pipe()
    end_out, end_in = os.pipe()

    def play() -> bool:
        os.read(connect_out, 1)
        sock = connect(agent)
        sock.sendall(HELLO)
        os.write(connected_in, f"{os.getpid():8}".encode())
        os.read(end_out, 1)
        sock.settimeout(0.2)
        return is_ended(sock)

    # All are there before the first connects: none inherits the agent's end of another's.
    pids = {forked(play) for _ in range(7)}
    order = []
    for _ in pids:
        os.write(connect_in, b"w")
        order.append(int(os.read(connected_out, 8)))
    agent.allow(order[-1])
    assert said.get(timeout=WAIT_S)[0] == order[-1]
    os.write(end_in, b"w" * 7)
    assert [ended_well(pid) for pid in order] == [True] * 4 + [False] * 3
    for end in (connect_out, connect_in, connected_out, connected_in, end_out, end_in):
        os.close(end)


def test_process_has_one_connection_that_says_nothing(agent: WorkerSockets, said: Said) -> None:
    """So a worker cannot fill the agent with them; the attached one is not touched."""
    attached = attach(agent, said)
    silent = [connect(agent) for _ in range(200)]
    assert all(is_ended(sock) for sock in silent[:-1])
    attached.sendall(pack(beat()))
    assert said.get(timeout=WAIT_S) == (ME, beat())


def test_worker_that_connects_anew_replaces_its_connection(
    agent: WorkerSockets, said: Said
) -> None:
    """A script that replaced itself (exec) has the same number."""
    first = attach(agent, said)
    second = connect(agent)
    second.sendall(HELLO)
    assert said.get(timeout=WAIT_S) == (ME, None)
    assert said.get(timeout=WAIT_S) == (ME, Attached(pid=ME))
    assert is_ended(first)
    agent.send(ME, Dump())
    assert second.recv(100) == pack(Dump())


def test_forgotten_worker_is_not_heard(agent: WorkerSockets, said: Said) -> None:
    """Its number may soon be another process's."""
    sock = attach(agent, said)
    agent.forget(ME)
    with suppress(OSError):
        sock.sendall(pack(beat()))
    assert is_ended(sock)
    agent.send(ME, Dump())
    assert said.empty()


def test_nothing_is_heard_or_told_after_close(agent: WorkerSockets, said: Said) -> None:
    """Nor does anything fail."""
    sock = attach(agent, said)
    agent.close()
    assert is_ended(sock)
    for call in (agent.allow, agent.forget):
        call(ME)
    agent.send(ME, Dump())
    agent.close()
    assert said.empty()


def test_worker_that_does_not_read_is_dropped(agent: WorkerSockets, said: Said) -> None:
    """The teller never waits for it, and others are told meanwhile."""
    sock = attach(agent, said)
    message = enter()
    count = worker_sockets.BACKLOG_LIMIT_BYTES // len(pack(message)) * 2
    done = Queue[bool]()

    def tell_all() -> None:
        for _ in range(count):
            agent.send(ME, message)
        done.put(True)

    Thread(target=tell_all, daemon=True).start()
    assert said.get(timeout=WAIT_S) == (ME, None)
    assert done.get(timeout=WAIT_S)
    assert is_ended(sock)
    again = attach(agent, said)
    agent.send(ME, Dump())
    assert again.recv(100) == pack(Dump())


def test_slow_reader_gets_everything_in_order(agent: WorkerSockets, said: Said) -> None:
    """What does not fit the socket is kept, and nothing told later overtakes it."""
    sock = attach(agent, said)
    read = Queue[bytes]()

    def read_all() -> None:
        with sock.makefile("rb") as lines:
            for line in lines:
                read.put(line)

    count = 30_000
    for step in range(count):
        if step == count // 2:
            Thread(target=read_all, daemon=True).start()
        agent.send(ME, Leave(at_step=step))
    for step in range(count):
        assert read.get(timeout=WAIT_S) == pack(Leave(at_step=step))


def test_tick_sees_all_that_had_come(said: Said) -> None:
    """However long the thread was held up, what lay unread is heard before anybody counts."""
    steps: list[int] = []
    seen: Queue[tuple[int, ...]] = Queue()
    hold: Queue[bool] = Queue()

    def heard(pid: int, message: FromWorker | None) -> None:
        if isinstance(message, Beat):
            steps.append(message.step)
            if message.step == 0:
                hold.get(timeout=WAIT_S)
        said.put((pid, message))

    def tick() -> float | None:
        seen.put(tuple(steps))
        return 0.01

    agent = WorkerSockets(Life("a1b2"), heard, tick=tick)
    sock = attach(agent, said)
    sock.sendall(pack(beat(0)))
    while 0 not in steps:
        time.sleep(0.001)
    while not seen.empty():
        seen.get()
    time.sleep(0.05)
    sock.sendall(pack(beat(1)))  # Comes while the thread is held up and a tick is long due.
    hold.put(True)
    seen.get(timeout=WAIT_S)  # The round that was under way.
    assert seen.get(timeout=WAIT_S) == (0, 1)
    agent.close()


def test_tick_rests_until_something_is_heard(said: Said) -> None:
    """An agent without workers of that kind has nothing to wake up for."""
    ticks: Queue[float] = Queue()

    def tick() -> float | None:
        ticks.put(time.monotonic())
        return None

    agent = WorkerSockets(Life("a1b2"), lambda pid, message: said.put((pid, message)), tick=tick)
    time.sleep(0.1)
    assert ticks.empty()
    sock = attach(agent, said)
    ticks.get(timeout=WAIT_S)
    time.sleep(0.1)
    assert ticks.empty()
    sock.sendall(pack(beat()))
    ticks.get(timeout=WAIT_S)
    agent.close()


def test_name_is_new_for_each_agent(agent: WorkerSockets) -> None:
    """Also where the life is the same; it fits the kernel's limit, and leaves no file."""
    other = WorkerSockets(Life("a1b2"), lambda pid, message: None)
    assert other.name != agent.name
    assert agent.name.startswith("elasticd-a1b2-")
    assert len(agent.name) < 100
    assert json.dumps(agent.name)
    other.close()
