"""A joiner with 512 MiB of state, beside the time that the same bytes take over loopback.

Two workers whose optimizer owns 512 MiB that no gradient reaches, other values in each process. One
is killed; its replacement has to fetch all of it from the survivor, which stands still meanwhile.
After each heal a plain pair of sockets carries as many bytes from one process to another.
"""

import os
import random
import signal
import socket
import time
from dataclasses import dataclass, field

from tests.benchmarks.bench import send, workplace
from tests.benchmarks.call import run
from tests.benchmarks.commits import Commits
from tests.benchmarks.inprocess_site import InProcessRun
from tests.benchmarks.report import Figure, Result, Series

__all__ = ["measure"]

TRIALS = 8
STATE_MIB = 512
STATE_BYTES = STATE_MIB * 2**20
WORKERS = 2
LIMIT_S = 90.0
START_LIMIT_S = 120.0
STEADY_STEPS = 20
FAULT_DELAY_S = (0.2, 0.6)
CHUNK_BYTES = 4 * 2**20


@dataclass(slots=True)
class Taken:
    stall: list[float] = field(default_factory=list)
    """The survivor's last step alone, to its first with the joiner."""
    floor: list[float] = field(default_factory=list)
    copy: list[float] = field(default_factory=list)
    compare: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    received: list[float] = field(default_factory=list)


def measure(trials: int) -> Result:
    """Kill, heal, send; again and again."""
    taken = Taken()
    rng = random.Random(1)  # only spreads the kills over time
    with workplace() as folder, Commits(folder) as feed:
        more = {"BENCH_BALLAST_MIB": str(STATE_MIB)}
        run = InProcessRun(folder, feed, "healing", workers=WORKERS, more=more)
        run.start()
        try:
            dead: set[int] = set()
            for number in range(trials):
                _heal(feed, number % WORKERS, dead, taken, rng)
                time.sleep(1.0)  # Copies that follow a change of world are over.
                taken.floor.append(_send(STATE_BYTES))
                print(f"stall {taken.stall[-1]:.3f}, loopback {taken.floor[-1]:.3f}", flush=True)
            changes = run.changes()
        finally:
            run.stop()
    for change in changes:
        if change["received_bytes"] >= STATE_BYTES:
            phases = change["phases_s"]
            taken.copy.append(phases.get("copy", 0.0))
            taken.compare.append(phases.get("compare", 0.0))
            taken.whole.append(change["total_s"])
            taken.received.append(change["received_bytes"] / 2**20)
    return _result(trials, taken)


def _heal(feed: Commits, rank: int, dead: set[int], taken: Taken, rng: random.Random) -> None:
    """Kill one; wait until the survivor has taken a step with the new one."""
    world = feed.wait_steady(WORKERS, STEADY_STEPS, START_LIMIT_S, dead)
    if world is None:
        raise RuntimeError(f"The job was not at full size within {START_LIMIT_S:g} s.")
    time.sleep(rng.uniform(*FAULT_DELAY_S))
    victim = feed.world().get(rank, world[rank])
    dead.add(victim.pid)
    since = len(feed.all)
    send([victim.pid], signal.SIGKILL)
    joined = feed.wait_for(
        lambda one: (
            one.name == "stepped"
            and one.pid not in dead
            and one.world == WORKERS
            and one.generation > victim.generation
        ),
        since,
        LIMIT_S,
    )
    if joined is None:
        raise RuntimeError(f"No step at full size within {LIMIT_S:g} s.")
    before = [
        one.at_s
        for one in feed.all
        if one.name == "stepped" and one.pid not in dead and one.generation < joined.generation
    ]
    taken.stall.append(joined.at_s - max(before))


def _send(count: int) -> float:
    """Seconds for so many bytes from another process, connection included; all memory is there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        child = os.fork()
        if child == 0:
            _serve(port, count)
        # After the fork, which would have each page copied again; touched, as that of tensors is.
        place = memoryview(bytearray(b"x" * count))
        line, _ = server.accept()
        with line:
            line.recv(1)  # Its memory is filled.
            began_s = time.monotonic()
            line.sendall(b"g")
            at = 0
            while at < count:
                at += line.recv_into(place[at:])
            ended_s = time.monotonic()
    os.waitpid(child, 0)
    return ended_s - began_s


def _serve(port: int, count: int) -> None:
    """In the child: send as many bytes at a word, and end."""
    try:
        data = memoryview(bytearray(os.urandom(CHUNK_BYTES)) * (count // CHUNK_BYTES))
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(b"r")
            line.recv(1)
            line.sendall(data)
    finally:
        os._exit(0)


def _result(trials: int, taken: Taken) -> Result:
    stall = Series(name="the survivor stands still", values=tuple(taken.stall))
    floor = Series(name="the same bytes over loopback", values=tuple(taken.floor))
    copy = Series(name="why: copy", values=tuple(taken.copy))
    compare = Series(name="why: compare", values=tuple(taken.compare))
    return Result(
        name="healing",
        title=f"In-process: a joiner with {STATE_MIB} MiB of state",
        command=f"python -m tests.benchmarks.healing --trials {trials}",
        method=METHOD,
        series=(
            copy,
            compare,
            Series(name="why: the whole change", values=tuple(taken.whole)),
            stall,
            floor,
            Series(name="received", values=tuple(taken.received), unit="MiB"),
        ),
        figures=(
            Figure(
                name="copy and compare / loopback, p50",
                value=(copy.at(0.5) + compare.at(0.5)) / floor.at(0.5),
                unit="x",
                target=2.0,
            ),
            Figure(
                name="the survivor stands still / loopback, p50",
                value=stall.at(0.5) / floor.at(0.5),
                unit="x",
                target=2.0,
            ),
        ),
    )


METHOD = (
    (
        f"`elasticd run --nproc-per-node {WORKERS} --max-node-losses -1 loop.py`; besides its "
        f"small model, the optimizer owns a parameter of {STATE_MIB} MiB that is in no gradient "
        "and not in DDP, random in each process, so that all of it travels. Each rank is killed in "
        "turn; the agent starts another, which fetches the state from the survivor."
    ),
    (
        "The survivor stands still from its last step alone to its first with the joiner: forming, "
        "comparing, copying, the DDP wrapper and a step of 10 ms included."
    ),
    (
        f"Loopback: after each heal, {STATE_MIB} MiB from a process to another by one plain TCP "
        "connection (`sendall`, `recv_into`), memory filled before, nothing else running but the "
        "job's steps."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)
