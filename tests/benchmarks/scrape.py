"""What a scrape of an agent's `/metrics` costs: its answer, its size, and the agent's memory.

The answer is that of three jobs with eight workers, twenty changes behind them and a keeper each,
asked for over HTTP as Prometheus does; the memory that of an agent that was started as a person
starts it, before and after a thousand scrapes.
"""

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from elasticd.channel.worker import Beat
from elasticd.keeper.metrics import Metrics
from elasticd.records.checkpoint import CheckpointSpec
from elasticd.records.ids import Generation, JobName, NodeId, Rank, Slot
from elasticd.records.job import JobSpec
from elasticd.records.keys import Keys
from elasticd.records.reason import Reason
from elasticd.rendezvous import event as ev
from elasticd.store.api import StoreSettings
from elasticd.store.etcd.store import EtcdStore
from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from elasticd.store.request_times import RequestTimes
from elasticd_agent.http_server.listener import HttpListener
from elasticd_agent.http_server.server import HttpServer
from elasticd_agent.loop.inbox import Inbox
from elasticd_agent.metrics.job_meters import JobMeters
from elasticd_agent.metrics.scrape import Scrape
from elasticd_agent.metrics.sources import Sources
from elasticd_agent.settings import AgentSettings
from tests.benchmarks.agent_cost import IDLE_S, idle_percent, resident_mb
from tests.benchmarks.bench import own_environ, program, send, start, tree, workplace
from tests.benchmarks.call import run
from tests.benchmarks.report import Figure, Result, Series
from tests.sim.schedule import spec_of
from tests.unit.rendezvous.cases import Told, running, world

__all__ = ["measure"]

TRIALS = 500
SCRAPES = 1000
JOBS, WORKERS, CHANGES, SCALARS = 3, 8, 20, 3
LIMIT_S = 60.0
START_WAIT_S = 3.0


def measure(trials: int) -> Result:
    load_before = os.getloadavg()[0]
    with workplace() as folder:
        answers_s, cpu_s, body = _answers(folder, trials)
        before, after, live_s = _agent(folder)
    series = [line for line in body.splitlines() if not line.startswith("#")]
    answered = Series(name="an answer of three jobs", values=tuple(answers_s))
    live = Series(name="an answer of an agent without a job", values=tuple(live_s))
    figures = (
        Figure(name="/metrics of three jobs, p50", value=answered.at(0.5)),
        Figure(name="/metrics of three jobs, p99", value=answered.at(0.99), target=0.02),
        Figure(name="processor time of one, client included, mean", value=cpu_s),
        Figure(name="series of three jobs", value=len(series), unit="", target=300),
        Figure(name="bytes of the answer", value=len(body.encode()) / 1000, unit="kB"),
        Figure(name="agent, resident, before the first scrape", value=before.mb, unit="MB"),
        Figure(
            name=f"agent, resident, after {SCRAPES:,} scrapes",
            value=after.mb,
            unit="MB",
            target=60,
        ),
        Figure(
            name="agent, idle CPU before the first scrape",
            value=before.idle_percent,
            unit="% of a core",
        ),
        Figure(
            name=f"agent, idle CPU after {SCRAPES:,} scrapes",
            value=after.idle_percent,
            unit="% of a core",
            target=0.2,
        ),
    )
    return Result(
        name="scrape",
        title="A scrape of the metrics",
        command=f"python -m tests.benchmarks.scrape --trials {trials}",
        method=METHOD,
        notes=(_noise(load_before),),
        series=(answered, live),
        figures=figures,
    )


def _noise(load_before: float) -> str:
    """Say how much else the machine did; more than its cores could serve makes answers late."""
    after, cores = os.getloadavg()[0], os.cpu_count()
    return f"Load average at the start {load_before:.1f}, at the end {after:.1f}, on {cores} cores."


def _answers(folder: Path, trials: int) -> tuple[list[float], float, str]:
    """Ask for the metrics of three jobs, again and again.

    Returns seconds of each, mean seconds of processor time, and one answer.
    """
    with _served(folder) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        took_s, body = [], b""
        before_s = time.process_time()
        for _ in range(trials):
            began_s = time.perf_counter()
            connection.request("GET", "/metrics")
            body = connection.getresponse().read()
            took_s.append(time.perf_counter() - began_s)
        connection.close()
        cpu_s = (time.process_time() - before_s) / trials
    return took_s, cpu_s, body.decode()


@contextmanager
def _served(folder: Path) -> Iterator[int]:
    """Serve the metrics of three jobs, with a thread that owns them as an agent has it."""
    inbox, meters, over = Inbox(), JobMeters(), threading.Event()
    keepers = []
    for number in range(JOBS):
        spec = spec_of(name=JobName(f"job-{number}"), uid=f"u{number}", workers_per_node=WORKERS)
        spec = replace(spec, checkpoint=CheckpointSpec(url="/nowhere", owner=spec.name))
        path = folder / "runs" / spec.name / "agents" / "a.keeper.prom"
        keepers.append(Metrics(spec.name, str(path)))
        _play(meters, spec)
    registration: Any = SimpleNamespace(lease=None, is_draining=False)
    scrape = Scrape(
        Sources(
            settings=AgentSettings(
                node=NodeId("a"),
                host="h",
                address="127.0.0.1",
                store=StoreSettings(endpoints=()),
                environ={},
                slots=JOBS * WORKERS,
                run_folder=folder / "runs",
            ),
            registration=registration,
            log_folders={},
            refused_writes=int,
            busy_s=lambda: inbox.busy_s,
            readings=lambda: inbox.ask(meters.readings, LIMIT_S),
            requests=RequestTimes(),
        )
    )

    def own() -> None:
        while not over.is_set():
            if (item := inbox.take(0.05)) is not None:
                item()

    owner = threading.Thread(target=own)
    owner.start()
    server = HttpServer(HttpListener("127.0.0.1"), (lambda path, query: scrape.answer(),))
    time.sleep(0.2)  # The keepers' files are written.
    try:
        yield server.port
    finally:
        server.close()
        over.set()
        owner.join(LIMIT_S)


def _play(meters: JobMeters, spec: JobSpec) -> None:
    """Let a job go through its changes on this node."""
    meter, told = meters.open(spec), Told()
    told.state = replace(told.state, spec=spec)
    told.tell(ev.SlotsGranted(slots=tuple(Slot(n) for n in range(WORKERS))))
    for number in range(1, CHANGES + 2):
        before = told.state
        told.world(replace(world(number, 0), reason=Reason.WORKER_FAILED))
        told.status(running(number))
        meter.observe(before, told.state, ())
        scalars = {f"scalar-{n}": 0.1 * n for n in range(SCALARS)}
        for rank in range(WORKERS):
            beat = Beat(
                generation=Generation(number),
                step=number * 100,
                step_s=0.1,
                batches=1,
                sequence=1,
                samples=number * 800,
                scalars=scalars,
            )
            meter.receive(Rank(rank), beat, (number - 1) * 100)


class Idle(NamedTuple):
    """What an agent that has nothing to do holds and uses."""

    mb: float
    idle_percent: float


def _agent(folder: Path) -> tuple[Idle, Idle, list[float]]:
    """Return what an agent costs before and after its scrapes, and how long each of them took."""
    with EmbeddedEtcd(folder / "etcd", env=os.environ) as etcd:
        store = EtcdStore(StoreSettings(endpoints=(etcd.url,)))
        argv = [program("elasticd"), "agent", "--etcd", etcd.url, "--node-id", "n0", "--log-json"]
        argv += ["--local-addr", "127.0.0.1", "--log-dir", str(folder / "agent")]
        process = start(argv, env=own_environ({}), log=folder / "agent.log", bound=False)
        try:
            port = _port(store)
            time.sleep(START_WAIT_S)
            before = Idle(resident_mb(process.pid), idle_percent(process.pid))
            took_s = []
            for _ in range(SCRAPES):
                began_s = time.perf_counter()
                # A connection each: that is the dearer way, and a proxy's.
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
                connection.request("GET", "/metrics")
                assert connection.getresponse().read()
                connection.close()
                took_s.append(time.perf_counter() - began_s)
            after_mb = resident_mb(process.pid)
            return before, Idle(after_mb, idle_percent(process.pid)), took_s
        finally:
            send(tree(process.pid), signal.SIGKILL)
            process.wait(5.0)
            store.close()


def _port(store: EtcdStore) -> int:
    """Wait until the agent is registered, and return where it serves."""
    deadline_s = time.monotonic() + LIMIT_S
    while (item := store.get(Keys("default").node(NodeId("n0")))) is None:
        if time.monotonic() > deadline_s:
            raise RuntimeError("the agent did not register")
        time.sleep(0.01)
    return int(json.loads(item.value)["http_port"])


METHOD = (
    (
        f"{JOBS} jobs with {WORKERS} workers each on one node, {CHANGES} changes and {SCALARS} "
        "numbers of `commit` in each, a keeper's file each. One connection, one request after the "
        "other, from request to the last byte, by a client in the same process. The thread that "
        "owns the jobs is another one, as in an agent. The processor time is that of the "
        "process: other work on the machine changes it little."
    ),
    (
        f"Memory: VmRSS (10^6 bytes) of an agent without a job, {START_WAIT_S:g} s after its start "
        f"and after {SCRAPES:,} scrapes with a connection each. Idle CPU: that of all its threads "
        f"over the {IDLE_S:g} s after each of these moments."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)
