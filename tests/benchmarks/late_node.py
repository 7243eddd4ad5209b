"""A node that becomes slow, to its name in etcd; and names of nodes that are not slow.

Two nodes train in step. One of them is slowed by 30 % in turn, and steps are counted until the
job's record says that it is late. Then nobody is slowed, and whoever is called late all the same
is counted.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from elasticd.records.account.late import LateNode, LateNodes
from elasticd.records.codec import decode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.keys import Keys
from elasticd.store.api import StoreSettings
from elasticd.store.etcd.store import EtcdStore
from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from tests.benchmarks.bench import ROOT, own_environ, program, send, start, tree, workplace
from tests.benchmarks.call import run
from tests.benchmarks.report import Figure, Result, Series

__all__ = ["measure"]

TRIALS = 20
UNDISTURBED_STEPS, UNDISTURBED_STEPS_A_TRIAL = 10_000, 500
SCRIPT = ROOT / "tests" / "fixtures" / "scripts" / "paced.py"
NODES = ("n0", "n1")
STEP_S, SHORT_STEP_S = 0.04, 0.02
STEADY_STEPS = 60
"""Before a node is slowed: the medians are those of an undisturbed job."""
LIMIT_S = 120.0
POLL_S = 0.005


@dataclass(slots=True)
class Found:
    """What became of the trials."""

    steps: list[float] = field(default_factory=list)
    """From the first slow one to the name."""
    waited_s: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    lost: int = 0
    wrong: int = 0
    """Names of a node that was not slowed."""


class LateJob:
    """Two daemons and an etcd; one job on them."""

    def __init__(self, folder: Path, name: str, step_s: float) -> None:
        self._folder, self._name = folder / name, JobName(name)
        self._folder.mkdir()
        self._step_s = step_s
        self._etcd = EmbeddedEtcd(self._folder / "etcd", env=os.environ)
        self._agents: list[subprocess.Popen[bytes]] = []
        self._store: EtcdStore | None = None

    def __enter__(self) -> "LateJob":
        self._etcd.start()
        self._store = EtcdStore(StoreSettings(endpoints=(self._etcd.url,)))
        env = own_environ({"OMP_NUM_THREADS": "1"})
        for node in NODES:
            argv = [program("elasticd"), "agent", "--etcd", self._etcd.url, "--node-id", node]
            argv += ["--slots", "1", "--local-addr", "127.0.0.1", "--log-json"]
            argv += ["--log-dir", str(self._folder / "runs")]
            self._agents.append(start(argv, env=env, log=self._folder / f"{node}.log"))
        argv = [program("elasticd"), "run", "--etcd", self._etcd.url, "--detach"]
        argv += ["--job", self._name, "--nnodes", str(len(NODES)), str(SCRIPT)]
        argv += [str(self._folder), f"{self._step_s:g}"]
        subprocess.run(argv, env=env, check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *ended: object) -> None:
        for agent in self._agents:
            send(tree(agent.pid), signal.SIGKILL)
            agent.wait(5.0)
        if self._store is not None:
            self._store.close()
        self._etcd.stop()

    @property
    def step(self) -> int:
        """How many steps the job has made."""
        path = self._folder / "step"
        return int(path.read_text()) if path.exists() else 0

    @property
    def named(self) -> tuple[LateNode, ...]:
        """All that were ever called late."""
        assert self._store is not None
        item = self._store.get(Keys("default").late(self._name))
        return decode(LateNodes, item.value).nodes if item is not None else ()

    @property
    def late(self) -> set[NodeId]:
        return {node.node for node in self.named if not node.until_unix_s}

    def slow(self, node: str, *, is_slow: bool) -> None:
        path = self._folder / f"slow-{node}"
        path.touch() if is_slow else path.unlink()

    def wait_steps(self, steps: int) -> None:
        """Wait until it has made so many more."""
        until = self.step + steps
        if not _wait(lambda: self.step >= until, LIMIT_S + steps * 4.0 * self._step_s):
            raise RuntimeError(f"The job did not make {steps} steps in time.")


def measure(trials: int) -> Result:
    """Slow a node, then none."""
    found, loads = Found(), [os.getloadavg()[0]]
    with workplace() as folder:
        with LateJob(folder, "slowed", STEP_S) as job:
            job.wait_steps(STEADY_STEPS)
            for number in range(trials):
                _trial(job, NODES[number % len(NODES)], found)
                loads.append(os.getloadavg()[0])
        steps = min(UNDISTURBED_STEPS, UNDISTURBED_STEPS_A_TRIAL * trials)
        with LateJob(folder, "undisturbed", SHORT_STEP_S) as job:
            job.wait_steps(STEADY_STEPS)
            job.wait_steps(steps)
            false = len(job.named)
            loads.append(os.getloadavg()[0])
    return _result(trials, found, steps, false, loads)


def _trial(job: LateJob, node: str, found: Found) -> None:
    job.wait_steps(STEADY_STEPS)
    before, began_s = job.step, time.monotonic()
    job.slow(node, is_slow=True)
    if _wait(lambda: job.late, LIMIT_S):
        found.steps.append(job.step - before)
        found.waited_s.append(time.monotonic() - began_s)
        found.wrong += job.late != {NodeId(node)}
        found.ratios.append(100.0 * job.named[-1].ratio)
        print(f"{node}: named after {found.steps[-1]:g} steps", flush=True)
    else:
        found.lost += 1
        print(f"{node}: not named within {LIMIT_S:g} s", flush=True)
    job.slow(node, is_slow=False)
    if not _wait(lambda: not job.late, LIMIT_S):
        raise RuntimeError(f"Node {node} was called late for {LIMIT_S:g} s after it was well.")


def _wait(what: Callable[[], object], limit_s: float) -> bool:
    until_s = time.monotonic() + limit_s
    while not what():
        if time.monotonic() >= until_s:
            return False
        time.sleep(POLL_S)
    return True


def _result(trials: int, found: Found, steps: int, false: int, loads: list[float]) -> Result:
    named = Series(
        name="steps until a slow node is named",
        values=tuple(found.steps),
        unit="",
        lost=found.lost,
    )
    return Result(
        name="late_node",
        title="A late node, to its name",
        command=f"python -m tests.benchmarks.late_node --trials {trials}",
        method=METHOD,
        notes=(f"Load average {min(loads):.1f} to {max(loads):.1f}, {os.cpu_count()} cores.",),
        series=(
            named,
            Series(name="the same in seconds", values=tuple(found.waited_s)),
            Series(name="how late it is said to be", values=tuple(found.ratios), unit="%"),
        ),
        figures=(
            Figure(name="steps until named, p50", value=named.at(0.5), unit="", target=60),
            Figure(name="names of the wrong node", value=found.wrong, unit="", target=0),
            Figure(name=f"names in {steps:,} undisturbed steps", value=false, unit="", target=0),
        ),
    )


METHOD = (
    (
        "Two `elasticd agent` with one worker each and a real etcd, all on this machine; DDP of a "
        f"4x1 layer with Gloo. A step sleeps for {STEP_S * 1000:g} ms, on the slowed node for 30 % "
        "longer; the two nodes take turns."
    ),
    (
        f"A node is slowed once the job has made {STEADY_STEPS} steps in which nobody was called "
        "late. Steps are counted from then until `jobs/<job>/late` in etcd, asked for every 5 ms, "
        "has a name: rank 0 writes the count into a file."
    ),
    (
        f"Undisturbed: steps of {SHORT_STEP_S * 1000:g} ms, and every name in that record counts, "
        "also one that was taken back."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)
