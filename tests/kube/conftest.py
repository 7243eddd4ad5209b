"""Fixtures for tests against a real Kubernetes: `make test-kube`, and not `make test`."""

from collections.abc import Iterator

import pytest

from elasticd.store.embedded import free_port
from tests.kube.testbed.cluster import Cluster
from tests.kube.testbed.control.api_server import ApiServer


@pytest.fixture(scope="session")
def kube_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server on loopback, for many tests: each uses a namespace of its own.

    Nothing runs beside it: no controller manager, no scheduler, no node.
    """
    yield from _started(_on_loopback(tmp_path_factory))


@pytest.fixture
def own_kube_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server for this test to stop, pause and start again."""
    yield from _started(_on_loopback(tmp_path_factory))


@pytest.fixture(scope="session")
def kube_cluster() -> Iterator[Cluster]:
    """A cluster of three nodes, for many tests: each uses a namespace and mends what it breaks.

    One that `make kube-up` left running is used as it is, and left running.
    """
    cluster = Cluster()
    was_up = cluster.is_up()
    try:
        cluster.up()
        yield cluster
    finally:
        if not was_up:
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
        dies_with_us=True,
    )


def _started(api: ApiServer) -> Iterator[ApiServer]:
    try:
        api.start()
        yield api
    finally:
        api.stop()
