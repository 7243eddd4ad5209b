"""The dashboard in a real browser: what a person sees, does, and is kept from.

With ELASTICD_SHOTS=DIR the screenshots are kept there.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.cli.incident_stacks import read_stacks
from elasticd.dashboard.action import ActionRequest, DrainRequest, ScaleRequest
from elasticd.dashboard.collector import Collector
from elasticd.dashboard.http_server import DashboardServer
from elasticd.errors import Refused
from elasticd.records.account.late import LateNode
from elasticd.records.checkpoint import CheckpointSpec
from elasticd.records.ids import NodeId
from elasticd.records.reason import Phase, Reason
from elasticd.store.memory import MemoryStore
from tests.fixtures.chromium import Tab, chromium_tab
from tests.unit.dashboard.records_case import (
    BEGAN_S,
    HOSTILE,
    HUNG,
    JOB,
    KEYS,
    SAY,
    SPEC,
    be_late,
    change_world,
    filled,
    opened,
    put,
)

TOKEN = "a-token-of-some-length"
NODES = 64
MANY_NODES_CHANGES, CHANGES = 30, 500
"""Two thousand incidents: each node tells of the first 30 changes, one of the others."""
PHONE = 390


@contextmanager
def calm(tab: Tab, server: DashboardServer) -> Iterator[None]:
    """Nothing is written to the console meanwhile, and nobody else is asked for anything."""
    begin_anew(tab)
    yield
    assert tab.complaints == []
    assert tab.requests and all(url.startswith((server.url, "data:")) for url in tab.requests)


@contextmanager
def dashboard(
    store: MemoryStore,
    *,
    is_archive: bool = False,
    token: str = "",
    act: Callable[[ActionRequest], str] | None = None,
    run_folder: Path = Path("/nowhere"),
) -> Iterator[DashboardServer]:
    collector = Collector(
        lambda: opened(store, is_archive=is_archive, run_folder=run_folder),
        lambda: (),
        SAY,
        read_stacks,
    )
    try:
        server = DashboardServer("127.0.0.1", 0, collector, token, act)
        try:
            yield server
        finally:
            server.close()
    finally:
        collector.close()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium_tab(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("ELASTICD_SHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_page_shows_what_happens_as_it_happens(tab: Tab, shots: Path) -> None:
    """A change of world comes by itself, hostile words stay words, nobody else is asked."""
    store = filled()
    put(store, KEYS.spec(JOB), replace(SPEC, checkpoint=CheckpointSpec(url="file:///c", owner="o")))
    with dashboard(store) as server, calm(tab, server):
        tab.resize(1400, 1100)
        tab.open(server.url)
        tab.wait("document.querySelectorAll('#changes details').length === 3")
        assert tab.evaluate("document.getElementById('name').textContent") == JOB
        tab.wait("document.getElementById('tiles').textContent.includes('no checkpoint yet')")
        tab.evaluate("document.querySelectorAll('#changes summary')[1].click()")
        words = tab.wait("document.querySelector('#changes pre')?.textContent")
        assert HOSTILE in words
        assert (
            tab.evaluate("document.querySelectorAll('#changes script, #changes img').length") == 0
        )
        late = LateNode(node=NodeId("node-1"), ratio=0.34, cost_nodes=0.8, since_unix_s=BEGAN_S)
        be_late(store, late)
        tab.wait("document.getElementById('late').textContent.includes('node-1 is late by 0.34')")
        tab.wait("document.getElementById('nodetable').textContent.includes('34 % late')")
        tab.wait("document.querySelectorAll('#timeline rect.late').length === 1")
        change_world(store, 4, Reason.NODE_LOST, ("node-1",), 120.0)
        tab.wait("document.querySelectorAll('#changes details').length === 4")
        assert tab.evaluate("document.querySelectorAll('#changes details[open]').length") == 1
        assert "waiting" in tab.evaluate("document.title"), "and not what the script said"
        tab.screenshot(shots / "desktop.png")


def test_stacks_are_read_when_somebody_opens_the_incident(
    tab: Tab, shots: Path, tmp_path: Path
) -> None:
    """As text, from the node that is chosen; what cannot be had is told in a sentence."""
    store = filled()
    change_world(store, 2, Reason.WORKER_HUNG, ("node-0",), 60.0, HUNG)
    folder = tmp_path / JOB / "incidents"
    folder.mkdir(parents=True)
    (folder / "gen-1.node-1.stacks.txt").write_text(
        f"=== rank 1, pid 7 ===\n  File 'train.py', line 12, in {HOSTILE}\n" + 200 * "in f\n"
    )
    shown = "document.querySelector('#changes pre:last-child')"
    said = "document.querySelector('#changes .stacks [role=status]').textContent"
    with dashboard(store, run_folder=tmp_path) as server, calm(tab, server):
        tab.resize(PHONE, 844, is_phone=True)
        tab.open(server.url)
        tab.wait("document.querySelectorAll('#changes details').length === 3")
        assert not any("api/stacks" in url for url in tab.requests)
        tab.evaluate("document.querySelectorAll('#changes summary')[1].click()")
        tab.wait(f"{said} === 'Stacks of the ranks of node-1:'")
        assert f"in {HOSTILE}" in tab.evaluate(f"{shown}.innerText")
        assert (
            tab.evaluate("document.querySelectorAll('#changes script, #changes img').length") == 0
        )
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE
        tab.screenshot(shots / "stacks.png")
        tab.evaluate(
            "(() => { const it = document.querySelector('.stacks select'); it.value = 'node-0';"
            " it.dispatchEvent(new Event('change')); })()"
        )
        tab.wait(f"{said}.includes('There is no incidents/gen-1.node-0.stacks.txt')")
        assert tab.evaluate(f"{shown}.hidden")
        (folder / "gen-1.node-0.stacks.txt").write_text("=== rank 0 ===\nin all_reduce\n")
        again = "[...document.querySelectorAll('.stacks button')].at(-1)"
        tab.wait(
            f"(() => {{ if ({said}.startsWith('The stacks')) {again}.click();"
            f" return {shown}.innerText.includes('in all_reduce'); }})()"
        )
        assert "waiting" in tab.evaluate("document.title"), "and not what the script said"


def test_page_never_says_that_a_job_is_gone_which_is_there(tab: Tab) -> None:
    """Neither while the page loads: the list of jobs comes first, and then the job."""
    note = (
        "addEventListener('DOMContentLoaded', () => {"
        "  const place = document.getElementById('nothing'); window.said = [];"
        "  new MutationObserver(() => said.push(place.textContent))"
        "    .observe(place, { childList: true });"
        "})"
    )
    with dashboard(filled()) as server:
        made = tab.call("Page.addScriptToEvaluateOnNewDocument", source=note)
        tab.open(server.url)
        tab.wait("document.querySelectorAll('#changes details').length === 3")
        assert not [text for text in tab.evaluate("said") if text]
        tab.open(f"{server.url}#another")
        tab.reload()
        tab.wait("window.said?.includes('This job is not there (any more).')")
        tab.call("Page.removeScriptToEvaluateOnNewDocument", **made)


def test_slider_goes_through_the_whole_run(tab: Tab) -> None:
    """Also of an archive: at each moment it says who was in the world, and why."""
    with dashboard(filled(Phase.SUCCEEDED), is_archive=True) as server, calm(tab, server):
        tab.resize(1400, 1100)
        tab.open(server.url)
        tab.wait("document.getElementById('link').textContent.includes('archive')")
        tab.wait("document.querySelectorAll('#timeline rect.in').length === 3")
        for place, words in ((100, "first_world"), (800, "worker_failed"), (1000, "joined")):
            tab.evaluate(
                f"(() => {{ const it = document.getElementById('slider'); it.value = {place};"
                " it.dispatchEvent(new Event('input')); })()"
            )
            tab.wait(f"document.getElementById('moment').textContent.includes('({words}')")
        tab.press("j")
        assert tab.wait("document.activeElement.matches('#changes summary')")
        tab.press("t")
        first = tab.wait("document.documentElement.dataset.theme")
        tab.press("t")
        assert tab.wait(f"document.documentElement.dataset.theme !== '{first}'")


def test_page_fits_a_phone_in_the_dark(tab: Tab, shots: Path) -> None:
    """Nothing is cut off at the side."""
    with dashboard(filled()) as server, calm(tab, server):
        tab.resize(PHONE, 844, is_phone=True)
        tab.prefer("dark")
        tab.open(server.url)
        tab.wait("document.querySelectorAll('#changes details').length === 3")
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE
        tab.screenshot(shots / "phone.png")
        tab.prefer("light")


def test_page_stays_usable_with_a_long_history(tab: Tab) -> None:
    """The newest changes are there at once, the others on wish."""
    store = filled()
    names = [f"node-{index}" for index in range(NODES)]
    for generation in range(4, MANY_NODES_CHANGES):
        change_world(store, generation, Reason.JOINED, names, 60.0 * generation)
    for generation in range(MANY_NODES_CHANGES, CHANGES):
        change_world(store, generation, Reason.WORKER_FAILED, names[:1], 60.0 * generation)
    with dashboard(store) as server, calm(tab, server):
        tab.resize(1400, 1100)
        tab.open(server.url)
        tab.wait("document.querySelectorAll('#changes details').length === 50")
        tab.wait(f"document.querySelectorAll('#timeline text').length >= {NODES}")
        tab.evaluate("document.getElementById('more').click()")
        tab.wait("document.querySelectorAll('#changes details').length === 250")


def test_actions_ask_for_the_token_and_ask_back(tab: Tab, shots: Path) -> None:
    """With the keyboard alone: scale, and a drain that is refused; nothing before the question."""
    acted: list[ActionRequest] = []

    def act(action: ActionRequest) -> str:
        acted.append(action)
        if isinstance(action, DrainRequest):
            raise Refused("Node 'node-0' has the only copy: <b>no</b>.")
        return "job digits is wanted on 3 nodes"

    with dashboard(filled(), token=TOKEN, act=act) as server:
        begin_anew(tab)
        tab.resize(1400, 1100)
        tab.open(server.url)
        tab.wait("document.activeElement.id === 'token'")
        tab.evaluate(f"document.getElementById('token').value = '{TOKEN}'")
        tab.press("Enter")
        tab.wait("!document.getElementById('deeds').hidden")
        assert not any(TOKEN in url for url in tab.requests), "an address is logged"

        focus(tab, "main")
        tab.press("s")
        tab.wait("document.activeElement.id === 'actnodes'")
        tab.evaluate("document.getElementById('actnodes').value = 9")
        tab.press("Enter")
        assert tab.evaluate("document.getElementById('actyes').textContent") == "Next\u2026", (
            "4 at most"
        )
        tab.evaluate("document.getElementById('actnodes').value = 3")
        tab.press("Enter")
        tab.wait("document.activeElement.id === 'actno'")
        tab.screenshot(shots / "asked.png")
        assert tab.evaluate("document.getElementById('acthead').textContent") == (
            "Scale job digits to 3 nodes?"
        )
        tab.press("Enter")  # On Cancel: who hits it too often changes nothing.
        tab.wait("!document.getElementById('act').open")
        assert acted == []
        focus(tab, "main")
        tab.press("s")
        tab.wait("document.activeElement.id === 'actnodes'")
        tab.evaluate("document.getElementById('actnodes').value = 3")
        tab.press("Enter")
        tab.wait("document.activeElement.id === 'actno'")
        tab.press("Tab")
        tab.wait("document.activeElement.id === 'actyes'")
        tab.press("Enter")
        tab.wait(
            "document.getElementById('actsaid').textContent"
            " === '\u2713 job digits is wanted on 3 nodes'"
        )
        assert acted == [ScaleRequest(job=JOB, nodes=3)]
        tab.press("Escape")
        tab.wait("!document.getElementById('act').open")

        tab.evaluate("document.querySelector('#nodetable button[data-node=node-0]').click()")
        tab.wait("document.getElementById('acthead').textContent === 'Drain node node-0?'")
        tab.evaluate("document.getElementById('actyes').click()")
        tab.wait("document.getElementById('actsaid').textContent.endsWith('<b>no</b>.')")
        assert acted[1:] == [DrainRequest(node="node-0")]
        assert [each for each in tab.complaints if "409" not in each and "401" not in each] == []


def test_other_pages_change_nothing(tab: Tab) -> None:
    """Not with the token either: the browser asks first, and is not answered."""
    acted: list[ActionRequest] = []

    def act(action: ActionRequest) -> str:
        acted.append(action)
        return "done"

    with dashboard(filled(), token=TOKEN, act=act) as server:
        tab.open("about:blank")
        for headers in ('{"Content-Type": "text/plain"}', f'{{"Authorization": "Bearer {TOKEN}"}}'):
            mode = "no-cors" if "plain" in headers else "cors"
            tab.evaluate(
                f"window.ended = 0; fetch('{server.url}api/actions', {{method: 'POST',"
                f" mode: '{mode}', headers: {headers},"
                """ body: '{"action": "stop", "job": "digits"}'}).then(() => 1, () => 1)"""
                ".then(() => { window.ended = 1; }); 1"
            )
            tab.wait("window.ended")
    assert acted == []


def begin_anew(tab: Tab) -> None:
    """Leave the page of the test before, which asks a server that is gone, and forget it."""
    tab.open("about:blank")
    tab.complaints.clear()
    tab.requests.clear()


def focus(tab: Tab, name: str) -> None:
    tab.evaluate(f"document.getElementById('{name}').focus()")
