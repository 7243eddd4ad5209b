"""What an agent costs that has no job: its start, its memory, its CPU.

Up means registered: for elasticd its record stands in etcd, for torchrun's agent its entry stands
in the rendezvous of its c10d store; both stores run already and are watched from here. The two take
turns. One start in five stays up for the idle figures.
"""

import os
import queue
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from elasticd.records.ids import NodeId
from elasticd.records.keys import Keys
from elasticd.store.api import KeyRange, KeysChanged, StoreSettings, WatchSnapshot
from elasticd.store.etcd.store import EtcdStore
from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from tests.benchmarks.bench import STEP, own_environ, program, send, start, tree, workplace
from tests.benchmarks.call import run
from tests.benchmarks.report import Figure, Result, Series
from tests.benchmarks.site import TorchrunSite

__all__ = ["IDLE_S", "idle_percent", "measure", "resident_mb"]

TRIALS = 10
LIMIT_S = 60.0
IDLE_START_S = 10.0
IDLE_S = 60.0
IDLE_EVERY = 5
POLL_S = 0.002
CPUCLOCK_SCHED = 2
"""Linux: the clock of all threads of a process, also of those that ended, in nanoseconds."""


class Costs:
    """One launcher's samples."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.start_s: list[float] = []
        self.resident_mb: list[float] = []
        self.idle_percent: list[float] = []
        self.lost = 0

    def series(self) -> tuple[Series, ...]:
        return (
            Series(
                name=f"{self.name}: start to registered",
                values=tuple(self.start_s),
                lost=self.lost,
            ),
            Series(
                name=f"{self.name}: resident after {IDLE_START_S:g} s idle",
                values=tuple(self.resident_mb),
                unit="MB",
            ),
            Series(
                name=f"{self.name}: CPU over {IDLE_S:g} s idle, of a core",
                values=tuple(self.idle_percent),
                unit="%",
            ),
        )


def measure(trials: int) -> Result:
    """Start and end both agents in turn."""
    mine, peer = Costs("elasticd agent"), Costs("torchrun agent")
    with workplace() as folder:
        _compile_all(folder)
        for number in range(trials):
            is_idle = number % IDLE_EVERY == 0
            _elasticd(folder, number, mine, is_idle=is_idle)
            _torchrun(folder, number, peer, is_idle=is_idle)
            print(f"start {number + 1}: {_newest(mine)}, {_newest(peer)}", flush=True)
    start_s, resident_mb, idle_percent = mine.series()
    figures = (
        Figure(name="elasticd agent, start to registered, p50", value=start_s.at(0.5), target=0.5),
        Figure(name="elasticd agent, start to registered, max", value=start_s.at(1.0)),
        Figure(
            name="elasticd agent, resident, max", value=resident_mb.at(1.0), unit="MB", target=60
        ),
        Figure(
            name="elasticd agent, idle CPU, max",
            value=idle_percent.at(1.0),
            unit="% of a core",
            target=0.2,
        ),
        Figure(name="torchrun agent, start to registered, p50", value=peer.series()[0].at(0.5)),
    )
    return Result(
        name="agent_cost",
        title="An agent without a job",
        command=f"python -m tests.benchmarks.agent_cost --trials {trials}",
        method=METHOD,
        series=(start_s, resident_mb, idle_percent, *peer.series()),
        figures=figures,
    )


def _compile_all(folder: Path) -> None:
    """Have the bytecode of both written, which happens once per installation."""
    for name in ("elasticd", "torchrun"):
        argv = [program(name), *(["agent"] if name == "elasticd" else []), "--help"]
        subprocess.run(argv, env=own_environ({}), capture_output=True, timeout=LIMIT_S, check=False)


def _elasticd(folder: Path, number: int, costs: Costs, *, is_idle: bool) -> None:
    with EmbeddedEtcd(folder / f"etcd-{number}", env=os.environ) as etcd:
        store = EtcdStore(StoreSettings(endpoints=(etcd.url,)))
        told: queue.Queue[float] = queue.Queue()
        key = Keys("default").node(NodeId("n0"))
        began: queue.Queue[None] = queue.Queue()

        def receive(news: WatchSnapshot | KeysChanged) -> None:
            if isinstance(news, WatchSnapshot):
                began.put(None)
            elif any(change.item is not None for change in news.changes):
                told.put(time.monotonic())

        watch = store.watch(KeyRange(key=key), receive)
        began.get(timeout=LIMIT_S)
        argv = [program("elasticd"), "agent", "--etcd", etcd.url, "--node-id", "n0"]
        argv += ["--local-addr", "127.0.0.1", "--log-dir", str(folder / "runs"), "--log-json"]

        def registered(started_s: float) -> float | None:
            try:
                return told.get(timeout=LIMIT_S) - started_s
            except queue.Empty:
                return None

        try:
            _cost(argv, folder / "elasticd.log", registered, costs, is_idle=is_idle)
        finally:
            watch.close()
            store.close()


def _torchrun(folder: Path, number: int, costs: Costs, *, is_idle: bool) -> None:
    # Here, as this costs a second: the other benchmarks need no torch in their own process.
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    name, *flags = TorchrunSite.command("2", f"127.0.0.1:{store.port}", "is_host=0")
    argv = [program(name), *flags, "--log-dir", str(folder / f"logs-{number}"), str(STEP)]

    def registered(started_s: float) -> float | None:
        while time.monotonic() - started_s < LIMIT_S:
            if store.check(["torch.rendezvous.bench"]):
                return time.monotonic() - started_s
            time.sleep(POLL_S)
        return None

    _cost(argv, folder / "torchrun.log", registered, costs, is_idle=is_idle)


def _cost(
    argv: list[str],
    log: Path,
    registered: Callable[[float], float | None],
    costs: Costs,
    *,
    is_idle: bool,
) -> None:
    """Start one agent, measure it, end it."""
    started_s = time.monotonic()
    # Not bound to our life: that would be 20 ms of its start; `workplace` ends it.
    process = start(argv, env=own_environ({}), log=log, bound=False)
    try:
        took_s = registered(started_s)
        if took_s is None:
            costs.lost += 1
            return
        costs.start_s.append(took_s)
        if is_idle:
            time.sleep(IDLE_START_S)
            costs.resident_mb.append(resident_mb(process.pid))
            costs.idle_percent.append(idle_percent(process.pid))
    finally:
        send(tree(process.pid), signal.SIGKILL)
        process.wait(5.0)


def resident_mb(root: int) -> float:
    """Resident memory of a process and all below it (both have none), in 10^6 bytes."""
    total = 0
    for pid in tree(root):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024
    return total / 1e6


def idle_percent(root: int) -> float:
    """Wait for a minute; return what a process and all below it used of a core meanwhile."""
    before_s, cpu_s = time.monotonic(), _cpu_s(root)
    time.sleep(IDLE_S)
    return 100 * (_cpu_s(root) - cpu_s) / (time.monotonic() - before_s)


def _cpu_s(root: int) -> float:
    """CPU time of a process and all below it, user and system, all threads."""
    return sum(time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED) for pid in tree(root))


def _newest(costs: Costs) -> str:
    return f"{costs.name} {costs.start_s[-1]:.3f}" if costs.start_s else f"{costs.name} lost"


METHOD = (
    (
        "elasticd: from the start of `elasticd agent --etcd URL` to its record in etcd, as a watch "
        "sees it; no job. torchrun: from the start of an agent that waits for a second node to its "
        "entry in the rendezvous in the c10d store, looked for every 2 ms. Both stores run before."
    ),
    (
        f"Every {IDLE_EVERY}th start stays up: resident memory (VmRSS, 10^6 bytes) after "
        f"{IDLE_START_S:g} s, CPU time of all threads over the {IDLE_S:g} s after that, by the "
        "process's CPU clock (clock_getcpuclockid)."
    ),
    "The bytecode of both is compiled beforehand and their files are in the page cache.",
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)
