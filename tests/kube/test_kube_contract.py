"""What every `Api` does, the operator's own client does on a real API server too."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from elasticd.kube.api.connection import ApiServerConnection, open_connection
from elasticd.kube.api.kubernetes_api import KubernetesApi
from elasticd.kube.api.port import Api, Name, Object, ResourceKind, name_of
from tests.contract.test_kube_api import *  # noqa: F403 - the same tests, with another `kube`
from tests.fixtures.kube_backend import QUICK, KubeBackend
from tests.fixtures.store import port_of
from tests.fixtures.tcp_proxy import TcpProxy
from tests.kube.operator_run import kubeconfig_of
from tests.kube.testbed.control.api_server import ApiServer

MERGE = "application/merge-patch+json"


@pytest.fixture
def kube(elasticd_api: ApiServer, tmp_path: Path) -> Iterator[KubeBackend]:
    with TcpProxy(port_of(elasticd_api.url)) as proxy:
        yield RealBackend(elasticd_api, proxy, tmp_path)


class RealBackend:
    """What the tests of the contract ask of an API server; as an administrator."""

    def __init__(self, server: ApiServer, proxy: TcpProxy, folder: Path) -> None:
        self.server, self.proxy = server, proxy
        config = kubeconfig_of(server, folder / "proxied", url=f"https://127.0.0.1:{proxy.port}")
        self.api: Api = KubernetesApi(open_connection(str(config)), QUICK)
        self._connection: ApiServerConnection = open_connection(str(server.kubeconfig))
        self._other = KubernetesApi(self._connection, QUICK)
        self.namespace = f"t-{secrets.token_hex(4)}"
        server.kubectl("create", "namespace", self.namespace)

    def create(self, kind: ResourceKind, body: Object) -> Object:
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        path = kind.path(namespace=self.namespace)
        return self._connection.ask("POST", path, {}, whole, what="create")

    def get(self, kind: ResourceKind, name: Name) -> Object | None:
        items = self._other.list(kind, namespace=name.namespace).items
        return next((item for item in items if name_of(item) == name), None)

    def change(self, kind: ResourceKind, name: Name, change: Mapping[str, Any]) -> Object:
        path = kind.path(name)
        return self._connection.ask("PATCH", path, {}, change, what="patch", content_type=MERGE)

    def away(self, action: Callable[[], None], *, is_compacted: bool) -> None:
        self.proxy.close_door()
        action()
        if is_compacted:
            # It keeps the newest changes in memory: one that begins anew has none before that.
            self.server.daemon.kill()
            self.server.start()
        self.proxy.open_door()
