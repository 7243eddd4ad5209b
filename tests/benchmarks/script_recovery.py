"""kill -9 to the next step of an unmodified Lightning and a Transformers script.

Both scripts save by themselves and go on from their last checkpoint. The interpreter that runs this
must have lightning and transformers; the project itself needs neither, so `make bench` leaves this
one out.
"""

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from elasticd.store.private_etcd.embedded import free_port
from tests.benchmarks.bench import ROOT, end, own_environ, send, start, tree, workplace
from tests.benchmarks.call import run
from tests.benchmarks.report import Figure, Result, Series

__all__ = ["measure"]

SCRIPTS = ("lightning", "transformers")
TRIALS = 10
TORCHRUN_SHARE = 5
"""One kill under torchrun for so many under elasticd."""
STEPS = 30
"""Of each process before it may be killed."""
LIMIT_S = 300.0
TARGET_S = 0.8


class Site:
    """Two nodes of one job with one worker each, and the steps that they took."""

    def __init__(self, folder: Path, script: str, *, is_torchrun: bool) -> None:
        self.folder = folder / f"{script}-{'torchrun' if is_torchrun else 'elasticd'}"
        self.folder.mkdir()
        self.stamps, self.log = self.folder / "stamps", self.folder / "log"
        path = Path(__file__).with_name(f"{script}_script.py")
        script_call = [str(path), str(self.folder / "saved"), str(self.stamps)]
        env = own_environ({"PYTHONPATH": f"{ROOT}:{ROOT / 'agent'}", "GLOO_SOCKET_IFNAME": "lo"})
        self._processes: list[subprocess.Popen[bytes]] = []
        for command in _torchrun() if is_torchrun else [_elasticd(self.folder)]:
            self._processes.append(start([*command, *script_call], env=env, log=self.log))

    def steps(self) -> list[tuple[int, float]]:
        """Which process ended a step, and when, in the order in which they were written."""
        if not self.stamps.exists():
            return []
        rows = [line.split() for line in self.stamps.read_text().splitlines()]
        return [(int(row[0]), float(row[2])) for row in rows if len(row) == 3]

    def kill_one(self, number: int) -> float | None:
        """Kill one of two workers that train; returns how long no new one took a step."""
        known: set[int] = set()

        def pair() -> list[int]:
            counts = Counter(pid for pid, _ in self.steps() if _lives(pid))
            return [pid for pid, count in counts.items() if count >= STEPS]

        if not _wait(lambda: len(pair()) >= 2):
            return None
        time.sleep(1.0)
        victims, known = pair(), {pid for pid, _ in self.steps()}
        killed_s = time.monotonic()
        send([victims[number % 2]], signal.SIGKILL)
        if not _wait(lambda: any(pid not in known for pid, _ in self.steps())):
            return None
        return min(at_s for pid, at_s in self.steps() if pid not in known) - killed_s

    def wait_until_learned(self) -> bool:
        logs = (self.folder / "runs" / "bench" / "agents").glob("local-?.log")
        learning = [log for log in logs if "pool.learned" not in log.read_text()]
        return _wait(lambda: all("pool.learned" in log.read_text() for log in learning))

    def stop(self) -> None:
        for process in self._processes:
            send(tree(process.pid)[1:], signal.SIGKILL)
            end(process)


def measure(trials: int) -> Result:
    """Measure one script after the other, under elasticd and beside it under torchrun."""
    series: list[Series] = []
    figures: list[Figure] = []
    with workplace() as folder:
        for script in SCRIPTS:
            first, later = _measure(folder, script, trials, is_torchrun=False)
            peer = _measure(folder, script, max(1, trials // TORCHRUN_SHARE), is_torchrun=True)[1]
            series += [first, later, peer]
            name = f"{script}: elasticd, p50"
            figures.append(Figure(name=name, value=later.at(0.5), target=TARGET_S))
            figures.append(Figure(name=f"{script}: torchrun, p50", value=peer.at(0.5)))
    return Result(
        name="script_recovery",
        title="kill -9 to the next step of scripts with heavy imports",
        command=f"python -m tests.benchmarks.script_recovery --trials {trials}",
        method=METHOD,
        series=tuple(series),
        figures=tuple(figures),
    )


def _measure(folder: Path, script: str, trials: int, *, is_torchrun: bool) -> tuple[Series, Series]:
    """Return the kill before anything was learned, and the later ones."""
    name = f"{script}: {'torchrun' if is_torchrun else 'elasticd'}"
    first: list[float | None] = []
    site = Site(folder, script, is_torchrun=is_torchrun)
    try:
        if not is_torchrun:
            first.append(site.kill_one(0))
            site.wait_until_learned()
        later = [site.kill_one(number) for number in range(trials)]
    finally:
        site.stop()
    print(name, first, later, flush=True)
    return _series(f"{name}, first kill", first), _series(name, later)


def _series(name: str, taken: list[float | None]) -> Series:
    values = tuple(value for value in taken if value is not None)
    return Series(name=name, values=values, lost=len(taken) - len(values))


def _elasticd(folder: Path) -> list[str]:
    argv = [sys.executable, "-m", "elasticd.cli", "run", "--job", "bench"]
    argv += ["--log-dir", str(folder / "runs"), "--local-agents", "2", "--nnodes", "2"]
    return [*argv, "--max-node-losses", "-1", "--preload", "auto"]


def _torchrun() -> list[list[str]]:
    port = free_port()
    return [
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
            *("--nproc-per-node", "1", "--rdzv-id", "bench", "--rdzv-backend", "c10d"),
            *("--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"),
            *("--rdzv-conf", f"is_host={1 if node == 0 else 0},last_call_timeout=1"),
            *("--max-restarts", "100", "--monitor-interval", "0.1"),
        ]
        for node in range(2)
    ]


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists() and bool(tree(pid))


def _wait(what: Callable[[], object]) -> bool:
    until_s = time.monotonic() + LIMIT_S
    while not what():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.005)
    return True


METHOD = (
    (
        "Restart mode; two nodes on this machine with one worker each; Gloo, a pause of 20 ms in "
        "each step. Lightning's Trainer (`strategy=ddp`) and transformers' Trainer, which save "
        "every 20 steps and go on from their last checkpoint; the scripts know nothing of elasticd."
    ),
    (
        "elasticd: `elasticd run --local-agents 2 --nnodes 2 --max-node-losses -1 "
        "--preload auto`, all else at its default."
    ),
    (
        "torchrun: `--rdzv-conf last_call_timeout=1 --monitor-interval 0.1`, one agent for each "
        "node."
    ),
    (
        "The time is from just before the kill to the end of the first step of any process that "
        "began after it. First kill: as soon as both had taken 30 steps, before or while the nodes "
        "learn. The others begin when both nodes have said `pool.learned`."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)
