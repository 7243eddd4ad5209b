"""Prometheus and an agent's server with certificates, and where etcd does not say who is there."""

from pathlib import Path

import pytest
import trustme

from elasticd.errors import Unavailable
from elasticd.records.codec import encode
from elasticd.records.keys import Keys
from elasticd.store.api import Put, Txn, WatchSnapshot
from elasticd.store.memory import MemoryStore
from elasticd_agent.http_server.answer import HttpAnswer
from elasticd_agent.http_server.discovery import Discovery
from elasticd_agent.http_server.listener import HttpListener
from elasticd_agent.http_server.server import HttpServer
from tests.fixtures.cluster import until
from tests.fixtures.http_server import tls_files
from tests.fixtures.prometheus import Prometheus, prometheus_on
from tests.unit.control.world_case import node


class Site:
    """One agent's server; its etcd may fall silent."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.client = tls_files(folder / "client", authority, "prometheus")
        self.is_silent = False
        self.asked = 0
        self._store = MemoryStore()
        routes = (Discovery(self._listed, "default", is_tls=True), self._metrics)
        tls = tls_files(folder / "node", authority, "node-a.example")
        self.server = HttpServer(HttpListener("127.0.0.1", tls), routes)
        there = node("a", self.server.port)
        put = Put(key=Keys().node(there.node), value=encode(there))
        self._store.commit(Txn(then=(put,)))

    def _listed(self, prefix: str) -> WatchSnapshot:
        self.asked += 1
        if self.is_silent:
            raise Unavailable("etcd is away.")
        return self._store.list(prefix)

    def _metrics(self, path: str, query: str) -> HttpAnswer | None:
        return HttpAnswer(body=b"elasticd_slots 7\n") if path == "/metrics" else None


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_shipped_variant_with_certificates_works_and_keeps_targets_without_etcd(
    site: Site, tmp_path: Path
) -> None:
    """The list and the scrapes both; of an error Prometheus makes no empty list."""
    url = f"https://127.0.0.1:{site.server.port}/sd"
    try:
        with prometheus_on(tmp_path / "prometheus", url, tls=site.client) as prometheus:
            until(lambda: slots(prometheus) == [("a", 7.0)], lambda: targets(prometheus))
            site.is_silent, site.asked = True, 0
            until(lambda: site.asked >= 3, lambda: site.asked)
            assert [target["scrapeUrl"] for target in targets(prometheus)] == [
                f"https://127.0.0.1:{site.server.port}/metrics"
            ]
            # One scrape or another comes too late on a busy machine.
            until(lambda: slots(prometheus) == [("a", 7.0)], lambda: targets(prometheus))
    finally:
        site.server.close()


def slots(prometheus: Prometheus) -> list[tuple[str, float]]:
    """By node: the scrape had the certificate as well."""
    return [(labels["instance"], value) for labels, value in prometheus.value("elasticd_slots")]


def targets(prometheus: Prometheus) -> list[dict[str, str]]:
    found: list[dict[str, str]] = prometheus.ask("/api/v1/targets")["activeTargets"]
    return found
