"""An agent is registered before it loads what it does not need for that."""

import json
import subprocess
import sys
from pathlib import Path

from tests.fixtures.patience import patience_s

LATER = (
    "elasticd_agent.agent",
    "elasticd_agent.http_server.server",
    "elasticd.control.logs.output",
    "elasticd.control.prune",
    "elasticd.rendezvous.decide",
    "http.server",
    "html",
)
"""Served or used once the node stands in etcd: each of them would be waited for at the start."""
NEVER = (
    "elasticd_agent.metrics.scrape",
    "elasticd.telemetry.metrics.exposition",
    "elasticd.control.jobs",
    "elasticd.control.report.report",
    "prometheus_client",
    "statistics",
    "decimal",
    "rich",
    "torch",
)
"""Not even later, in an agent that nobody scrapes, and none of whose nodes is drained."""
CODE = """
import json, sys
from pathlib import Path
import elasticd.cli.daemons.agent
from elasticd.records.ids import NodeId
from elasticd.store.api import StoreSettings
from elasticd.store.memory import MemoryStore
from elasticd_agent import main
from elasticd_agent.node.presence import Presence
from elasticd_agent.settings import AgentSettings

folder, told = map(Path, sys.argv[1:])
presence = Presence(AgentSettings(node=NodeId("a"), host="h", address="127.0.0.1", slots=1,
    store=StoreSettings(endpoints=()), environ={}, run_folder=folder), MemoryStore())
before = sorted(sys.modules)
presence.open()
from elasticd_agent.agent import Agent
told.write_text(json.dumps([before, sorted(sys.modules)]))
presence.close()
"""


def test_nothing_is_loaded_before_it_is_needed(tmp_path: Path) -> None:
    """Half a second from start to registered, and 60 MB; see docs/benchmarks.md."""
    told = tmp_path / "told"
    ended = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path), str(told)],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience_s(60.0),
    )
    assert ended.returncode == 0, ended.stderr
    before, after = json.loads(told.read_text())
    assert [name for name in (*LATER, *NEVER) if name in before] == []
    assert [name for name in NEVER if name in after] == []
    assert [name for name in LATER if name not in after] == [], "a name of nothing proves nothing"
