"""The dashboard of a job that the autoscaler sizes, in a real browser.

With ELASTICD_SHOTS=DIR the screenshots are kept there.
"""

import os
from dataclasses import replace
from pathlib import Path

from elasticd.cli.views.sentences import SENTENCES
from elasticd.dashboard.collector import Collector
from elasticd.dashboard.http_server import DashboardServer
from elasticd.records.account.incident import Incident
from elasticd.records.ids import Generation, NodeId
from elasticd.records.job import Want
from elasticd.records.reason import Reason
from tests.fixtures.autoscaled import AT_S, GREW, JOB, KEYS, autoscaled, put
from tests.fixtures.chromium import chromium_tab
from tests.unit.dashboard.records_case import HOSTILE, opened

WISH = Want(writer="autoscaler", nodes=2, why="3 were taken back", since_unix_s=1_700_000_400.0)
FIRST = Incident(
    generation=Generation(1),
    node=NodeId("node-0"),
    host="host-0",
    reason=Reason.FIRST_WORLD,
    nodes=2,
    world_size=2,
    at_unix_s=AT_S,
)
PHONE = 390


def test_curve_with_its_decisions_is_drawn_and_a_new_decision_comes_by_itself(
    tmp_path: Path,
) -> None:
    """Measured sizes, the fit, what was promised, what is held; words of others stay words."""
    shots = Path(os.environ.get("ELASTICD_SHOTS", tmp_path))
    store = autoscaled(wants=(WISH,))
    put(store, KEYS.incident(JOB, Generation(1), NodeId("node-0")), FIRST)
    collector = Collector(lambda: opened(store), lambda: (), SENTENCES)
    server = DashboardServer("127.0.0.1", 0, collector)
    try:
        with chromium_tab(tmp_path) as tab:
            tab.resize(1400, 1300)
            tab.open(server.url)
            tab.wait("document.querySelectorAll('#decisions details').length === 3")
            assert tab.evaluate("document.querySelectorAll('#scaling circle.dot').length") == 2
            assert tab.evaluate("document.querySelectorAll('#scaling path.backed').length") == 1
            assert tab.evaluate("document.querySelectorAll('#scaling circle.guess').length") == 1
            assert tab.evaluate("document.querySelectorAll('#scaling path.wish').length") == 2
            marks = "[...document.querySelectorAll('#timeline path.sized')]"
            assert tab.evaluate(f"{marks}.length") == 3
            (backed,) = tab.evaluate(
                f"{marks}.filter((each) => each.matches('.lost')).map((each) => each.textContent)"
            )
            assert "#2 2 -> 3 nodes" in backed
            words = tab.evaluate("document.getElementById('wish').textContent")
            assert "wished for by the autoscaler" in words and "held since" in words
            tab.evaluate("document.querySelector('#decisions summary').click()")
            tab.screenshot(shots / "autoscale.png")
            put(store, KEYS.decision(JOB, 4), replace(GREW, number=4, why=HOSTILE))
            tab.wait("document.querySelectorAll('#decisions details').length === 4")
            assert HOSTILE in tab.evaluate("document.getElementById('decisions').textContent")
            assert tab.evaluate("document.querySelectorAll('#decisions details[open]').length") == 1
            tab.resize(PHONE, 844, is_phone=True)
            # What was drawn for the wide screen is drawn again in the next frame.
            tab.wait(f"document.documentElement.scrollWidth <= {PHONE}")
            tab.screenshot(shots / "autoscale-phone.png")
            assert tab.complaints == []
    finally:
        server.close()
        collector.close()
