"""Who answers a policy's queries: Prometheus where one is named, else the agents."""

from contextlib import closing
from pathlib import Path

import pytest

from elasticd.autoscale.direct.agents_source import AgentsSource
from elasticd.autoscale.metrics_source import Query
from elasticd.autoscale.prometheus.client import PrometheusClient
from elasticd.cli.autoscale.prometheus_flags import open_source, prometheus_settings
from elasticd.cli.main import main
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.codec import encode
from elasticd.records.keys import Keys
from elasticd.store.api import Put, StoreSettings, Txn
from elasticd.store.memory import MemoryStore
from tests.fixtures.ports import free_port
from tests.unit.control.world_case import node

ETCD = StoreSettings(endpoints=("http://127.0.0.1:1",))
PROMQL = """
[target]
[[target.metrics]]
name = "{name}"
query = 'sum(rate(elasticd_samples_total{{job_name="$job"}}[$window]))'
supply = 5
"""


def test_agents_that_are_registered_are_asked_where_no_prometheus_is_named() -> None:
    """Those of etcd, as they are at each evaluation."""
    store, keys = MemoryStore(), Keys()
    query = Query(job="j", name="m", text="elasticd_workers")
    with closing(open_source(None, store, keys, ETCD)) as source:
        assert isinstance(source, AgentsSource)
        assert source.read([query])[query].why == HoldReason.EMPTY
        there = node("a", free_port())
        store.commit(Txn(then=(Put(key=keys.node(there.node), value=encode(there)),)))
        assert source.read([query])[query].detail == "The agent of node a does not answer."


def test_prometheus_is_asked_as_the_flags_say(tmp_path: Path) -> None:
    """With our own certificate, too."""
    names = ("token_file", "ca_file", "cert_file", "key_file")
    settings = prometheus_settings(
        {"prometheus": "https://h/p"} | {name: f"/etc/{name}" for name in names}
    )
    assert settings is not None
    assert settings.bearer_token_file == "/etc/token_file"
    assert (settings.ca_file, settings.cert_file, settings.key_file) == tuple(
        f"/etc/{name}" for name in names[1:]
    )
    plain = prometheus_settings({"prometheus": "http://h"})
    with closing(open_source(plain, MemoryStore(), Keys(), ETCD)) as source:
        assert isinstance(source, PrometheusClient) and source.url == "http://h:80"


@pytest.mark.parametrize(
    ("name", "flags", "is_taken"),
    [
        ("throughput", ("--local-agents", "1"), False),
        ("elasticd_samples_total", ("--local-agents", "1"), True),
        ("throughput", ("--local-agents", "1", "--prometheus", "http://h:9090"), True),
        ("throughput", ("--etcd", "http://h:2379"), True),
    ],
)
def test_local_run_without_a_prometheus_refuses_promql(
    name: str,
    flags: tuple[str, ...],
    is_taken: bool,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Before anything starts, unless the metric's name says what is meant."""
    (tmp_path / "script.py").touch()
    (tmp_path / "policy.toml").write_text(PROMQL.format(name=name))
    call = ["run", "--dry-run", "--autoscale", str(tmp_path / "policy.toml"), *flags]
    code = main([*call, "--nnodes", "1:2", str(tmp_path / "script.py")])
    shown = capfd.readouterr().err
    assert code == (0 if is_taken else 2), shown
    if not is_taken:
        assert "is PromQL, and without a Prometheus" in shown and "Traceback" not in shown
        assert shown.count("\n") == 1
