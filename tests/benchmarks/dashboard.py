"""The dashboard in a real browser: a change to the pixel, the first paint, fifty pages at once.

A history of two thousand incidents of 64 nodes, in an etcd. A change is written there by another
connection than the one by which the dashboard watches it, and the time ends when the page has drawn
it. The first paint is by the browser's
own clock, from the beginning of the navigation to the list of changes. The memory is that of
`elasticd dashboard` on an archive of that history, with fifty pages that listen.
"""

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from elasticd.control.local_run.archive import archive, records_of
from elasticd.dashboard.collector import Collector
from elasticd.dashboard.http_server import DashboardServer
from elasticd.records.reason import Phase, Reason
from elasticd.store.api import Store, StoreSettings
from elasticd.store.etcd.store import EtcdStore
from elasticd.store.memory import MemoryStore
from elasticd.store.private_etcd.embedded import EmbeddedEtcd, free_port
from tests.benchmarks.agent_cost import resident_mb
from tests.benchmarks.bench import end, own_environ, program, start, workplace
from tests.benchmarks.call import run
from tests.benchmarks.report import Figure, Result, Series
from tests.fixtures.chromium import chromium_tab
from tests.unit.dashboard.records_case import JOB, KEYS, SAY, Place, change_world, fill, opened

__all__ = ["measure"]

TRIALS = 30
NODES, WIDE, CHANGES = 64, 30, 120
"""Changes that all nodes told of, and all changes: 64 x 30 + 90, two thousand incidents."""
PAGES = 50
LIMIT_S = 60.0
PAGE_WAIT_S = 2.0
METHOD = (
    "Chromium without a window, and an etcd, on the same machine as everything else.",
    "A poll of the page takes a few milliseconds, which are part of the time from change to pixel.",
)


def measure(trials: int) -> Result:
    pixels, paints = [], []
    with (
        workplace() as folder,
        EmbeddedEtcd(folder / "etcd", env=os.environ) as etcd,
        chromium_tab(folder) as tab,
        ExitStack() as stack,
    ):
        tab.resize(1400, 1100)
        settings = StoreSettings(endpoints=(etcd.url,))
        store = stack.enter_context(closing(EtcdStore(settings)))
        _tell_history(store)
        with _served(settings) as url:
            for _ in range(max(3, trials // 3)):
                tab.open("about:blank")
                tab.call("Page.navigate", url=url)
                paints.append(
                    tab.wait("document.querySelector('#changes details') && performance.now()")
                    / 1e3
                )
            for number in range(trials):
                generation = CHANGES + number
                began_s = time.perf_counter()
                change_world(store, generation, Reason.JOINED, ("node-0",), 60.0 * generation)
                tab.wait(
                    "document.querySelector('#changes details').dataset.generation"
                    f" === '{generation}'"
                )
                pixels.append(time.perf_counter() - began_s)
        idle_mb, busy_mb = _memory(folder)
    pixel = Series(name="a change in etcd to the pixel", values=tuple(pixels))
    paint = Series(name="first paint, by the browser", values=tuple(paints))
    return Result(
        name="dashboard",
        title="The dashboard, 2,000 incidents of 64 nodes in an etcd",
        command=f"python -m tests.benchmarks.dashboard --trials {trials}",
        method=METHOD,
        series=(pixel, paint),
        figures=(
            Figure(name="change to pixel, p50", value=pixel.at(0.5)),
            Figure(name="change to pixel, p99", value=pixel.at(0.99), target=1.0),
            Figure(name="first paint, p50", value=paint.at(0.5), target=1.0),
            Figure(name="first paint, p99", value=paint.at(0.99)),
            Figure(name="resident, no page", value=idle_mb, unit="MB"),
            Figure(name=f"resident, {PAGES} pages", value=busy_mb, unit="MB", target=150),
        ),
    )


def _tell_history(store: Store) -> None:
    fill(store, Phase.WAITING)
    names = [f"node-{index}" for index in range(NODES)]
    for generation in range(4, CHANGES):
        members = names if generation < 4 + WIDE else names[:1]
        change_world(store, generation, Reason.JOINED, members, 60.0 * generation)


@contextmanager
def _served(settings: StoreSettings) -> Iterator[str]:
    collector = Collector(lambda: _opened(settings), lambda: (), SAY)
    server = DashboardServer("127.0.0.1", 0, collector)
    try:
        yield server.url
    finally:
        server.close()
        collector.close()


@contextmanager
def _opened(settings: StoreSettings) -> Iterator[Sequence[Place]]:
    with closing(EtcdStore(settings)) as store, opened(store) as places:
        yield places


def _memory(folder: Path) -> tuple[float, float]:
    """Return what the process holds before and while fifty pages listen, in 10^6 bytes."""
    runs = folder / "runs"
    (runs / JOB).mkdir(parents=True)
    history = MemoryStore()
    _tell_history(history)
    archive(records_of(history, KEYS, JOB).values(), runs / JOB / "records.json")
    port = free_port()
    argv = [program("elasticd"), "dashboard", "--log-dir", str(runs), "--port", str(port)]
    process = start(argv, env=own_environ({}), log=folder / "dashboard.log")
    try:
        with ExitStack() as stack:
            stack.enter_context(_page(port))
            time.sleep(PAGE_WAIT_S)
            idle_mb = resident_mb(process.pid)
            for _ in range(PAGES - 1):
                stack.enter_context(_page(port))
            time.sleep(PAGE_WAIT_S)
            return idle_mb, resident_mb(process.pid)
    finally:
        end(process)


@contextmanager
def _page(port: int) -> Iterator[None]:
    """Listen as a page does, and take all that it is told at first."""
    until_s = time.monotonic() + LIMIT_S
    while True:
        try:
            page = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
            break
        except OSError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(0.1)
    with page:
        page.sendall(f"GET /api/events?job={JOB} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        told = b""
        while b'"generations"' not in told:
            told += page.recv(1 << 16)
        yield


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)
