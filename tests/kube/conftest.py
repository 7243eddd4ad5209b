"""Fixtures for tests against a real Kubernetes: `make test-kube`, and not `make test`."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.store.private_etcd.embedded import EmbeddedEtcd, free_port
from tests.fixtures.manifests import KUSTOMIZE
from tests.kube.ci_selection import is_in_ci, turn_of, unknown_names
from tests.kube.operator_run import CHAOS, OPERATOR, OperatorRun
from tests.kube.testbed.cluster import Cluster
from tests.kube.testbed.control.api_server import ApiServer


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what CI runs, before `-m in_ci` is looked at, and put what takes longest last.

    Raises:
        UsageError: CI is to run a test that is not there.
    """
    ours = [item for item in items if item.path.parent == Path(__file__).parent]
    names = [f"{item.path.name}::{item.nodeid.partition('::')[2]}" for item in ours]
    for item, name in zip(ours, names, strict=True):
        if is_in_ci(name):
            item.add_marker(pytest.mark.in_ci)
    turns = {id(item): turn_of(name) for item, name in zip(ours, names, strict=True)}
    items.sort(key=lambda item: turns.get(id(item), 0))  # Otherwise they stay in their order.
    is_whole = not any("::" in word for word in config.args)
    if is_whole and config.option.markexpr == "in_ci" and (unknown := unknown_names(names)):
        raise pytest.UsageError(f"tests/kube/ci_selection.py names no test: {', '.join(unknown)}")


@pytest.fixture(scope="session")
def kube_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server on loopback, for many tests: each uses a namespace of its own.

    Nothing runs beside it: no controller manager, no scheduler, no node.
    """
    yield from _started(_on_loopback(tmp_path_factory))


@pytest.fixture(scope="session")
def elasticd_api(kube_api: ApiServer) -> ApiServer:
    """The API server with all that deploy/kustomize gives to a cluster; nothing of it runs."""
    overlay = KUSTOMIZE / "overlays" / "kubernetes-1.20"
    kube_api.kubectl("apply", "-k", str(overlay))
    kube_api.kubectl("wait", "--for=condition=Established", "crd/elasticjobs.elasticd.dev")
    return kube_api


@pytest.fixture(scope="module")
def operator(
    elasticd_api: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorRun]:
    """An operator with an etcd of its own, for the tests of one module, each in its own namespace.

    It ends with the module: it fills in fields of every ElasticJob of the server, and other modules
    write some and expect them back as they wrote them.
    """
    folder = tmp_path_factory.mktemp("operator")
    with (
        EmbeddedEtcd(folder / "etcd", env=os.environ) as etcd,
        OperatorRun(elasticd_api, etcd.url, folder) as operator,
    ):
        yield operator


@pytest.fixture
def own_kube_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server for this test to stop, pause and start again."""
    yield from _started(_on_loopback(tmp_path_factory))


@pytest.fixture(scope="session")
def is_cluster_kept() -> bool:
    """True if `make kube-up` left a cluster running: it is used as it is, and left running."""
    return Cluster().is_up()


@pytest.fixture(scope="session")
def kube_cluster(is_cluster_kept: bool) -> Iterator[Cluster]:
    """A cluster of three nodes, for many tests: each uses a namespace and mends what it breaks."""
    cluster = Cluster()
    try:
        cluster.up()
        yield cluster
    finally:
        if not is_cluster_kept:
            cluster.down()


@pytest.fixture
def kube_namespace(kube_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the cluster for this test alone, gone afterwards with all that is in it."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:50].strip("-")
    kube_cluster.api.kubectl("create", "namespace", name)
    kube_cluster.wait_service_account(name)
    yield name
    kube_cluster.api.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def other_kube_cluster() -> Iterator[Cluster]:
    """A cluster for this test to take down, not up yet; it goes in any case."""
    cluster = Cluster(number=15)
    cluster.down()
    try:
        yield cluster
    finally:
        cluster.down()


def _on_loopback(folders: pytest.TempPathFactory) -> ApiServer:
    return ApiServer(
        folders.mktemp("kube-api"),
        host="127.0.0.1",
        port=free_port(),
        etcd_port=free_port(),
        etcd_peer_port=free_port(),
        users=(OPERATOR, CHAOS),
        dies_with_us=True,
    )


def _started(api: ApiServer) -> Iterator[ApiServer]:
    try:
        api.start()
        yield api
    finally:
        api.stop()
