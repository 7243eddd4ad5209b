"""The stores that must keep the contract, each with a hand on its faults."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from elasticd.store.api import LeaseId, Store, StoreSettings
from elasticd.store.etcd.store import EtcdStore
from elasticd.store.memory import MemoryStore
from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from tests.fixtures.api_server import ApiServer
from tests.fixtures.etcd import PROGRAMS, EtcdAdmin, installed
from tests.fixtures.kube_backend import HttpBackend, KubeBackend
from tests.fixtures.kube_backend import MemoryBackend as MemoryKube
from tests.fixtures.store import PATIENT_S
from tests.fixtures.tcp_proxy import TcpProxy


class Backend(Protocol):
    """A store under test."""

    store: Store
    other: Store
    """A second client of the same etcd, that no fault touches."""

    def end_lease(self, lease_id: LeaseId) -> None:
        """Make a lease run out behind its holder's back."""

    def away(self, action: Callable[[], None], *, is_compacted: bool) -> None:
        """Do the action while the first client's watches are cut off."""


class MemoryBackend:
    def __init__(self) -> None:
        self.memory = MemoryStore()
        self.store: Store = self.memory
        self.other: Store = self.memory

    def end_lease(self, lease_id: LeaseId) -> None:
        self.memory.expire(lease_id)

    def away(self, action: Callable[[], None], *, is_compacted: bool) -> None:
        self.memory.drop_watches()
        action()
        if is_compacted:
            self.memory.compact()
        self.memory.resume_watches()


class EtcdBackend:
    def __init__(self, etcd: EmbeddedEtcd, proxy: TcpProxy) -> None:
        self._etcd = etcd
        self._proxy = proxy
        self.store: Store = EtcdStore(StoreSettings(endpoints=[proxy.url], timeout_s=PATIENT_S))
        self.other: Store = EtcdStore(StoreSettings(endpoints=[etcd.url], timeout_s=PATIENT_S))

    def end_lease(self, lease_id: LeaseId) -> None:
        with contextlib.closing(EtcdAdmin(self._etcd.url)) as admin:
            admin.end_lease(lease_id)

    def away(self, action: Callable[[], None], *, is_compacted: bool) -> None:
        self._proxy.close_door()
        action()
        if is_compacted:
            with contextlib.closing(EtcdAdmin(self._etcd.url)) as admin:
                admin.compact(admin.revision())
        self._proxy.open_door()


@pytest.fixture(scope="session", params=["memory", *PROGRAMS])
def etcd_or_memory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedEtcd | None]:
    if request.param == "memory":
        yield None
        return
    program = installed(request.param)
    with EmbeddedEtcd(tmp_path_factory.mktemp("etcd"), program=program, env=os.environ) as etcd:
        yield etcd


@pytest.fixture
def backend(etcd_or_memory: EmbeddedEtcd | None) -> Iterator[Backend]:
    if etcd_or_memory is None:
        yield MemoryBackend()
        return
    port = int(etcd_or_memory.url.rsplit(":", 1)[1])
    with TcpProxy(port) as proxy:
        backend = EtcdBackend(etcd_or_memory, proxy)
        yield backend
        backend.store.close()
        backend.other.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """A prefix of this test's own: the etcd is shared."""
    return f"/{request.node.name}/"


@pytest.fixture(params=["memory", "http"])
def kube(request: pytest.FixtureRequest) -> Iterator[KubeBackend]:
    """API servers of Kubernetes; `tests/kube` has a real one."""
    if request.param == "memory":
        yield MemoryKube()
        return
    with ApiServer() as server, TcpProxy(server.port) as proxy:
        yield HttpBackend(server, proxy)
