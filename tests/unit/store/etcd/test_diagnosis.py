"""What is found out by hand where gRPC says no more than UNAVAILABLE."""

import socket
import struct
import threading
import time
from collections.abc import Iterator

import grpc
import pytest

from elasticd.errors import ElasticdError, Refused, Unavailable
from elasticd.store.address import Address
from elasticd.store.api import StoreSettings
from elasticd.store.etcd.diagnosis import diagnose
from elasticd.store.etcd.failure import EtcdFailure, Fate
from tests.fixtures.patience import patience_s

SETTINGS_FRAME = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@pytest.fixture
def plain_port() -> Iterator[int]:
    """A server without TLS that hangs up on whoever does not speak HTTP/2, with bytes unread.

    The other side then gets a reset instead of an end, as it may from etcd.
    """

    def serve() -> None:
        while True:
            try:
                connected, _ = listener.accept()
            except OSError:
                return
            with connected:
                if connected.recv(1) == b"P":
                    connected.sendall(SETTINGS_FRAME)
                    continue
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(patience_s(10.0))


def diagnosis_of(address: Address) -> ElasticdError:
    failure = EtcdFailure(
        address=address,
        fate=Fate.UNKNOWN,
        code=grpc.StatusCode.UNAVAILABLE,
        details="",
        error=Unavailable("no more than this"),
    )
    settings = StoreSettings(endpoints=(address.url,))
    limit_s = time.monotonic() + patience_s(10.0)
    return diagnose([address], settings, failure, limit_s=limit_s)


def test_a_server_without_tls_that_resets_is_told_as_one_that_ends(plain_port: int) -> None:
    """Which of the two comes is a matter of microseconds."""
    address = Address(host="127.0.0.1", port=plain_port, is_tls=True)
    found = diagnosis_of(address)
    assert isinstance(found, Refused)
    assert str(found) == f"etcd at {address.url} does not speak TLS: write http instead of https."


def test_etcd_that_stands_still_is_not_told_as_something_else() -> None:
    """The kernel takes connections for a process that was stopped."""
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        address = Address(host="127.0.0.1", port=stopped.getsockname()[1], is_tls=False)
        found = diagnosis_of(address)
    assert isinstance(found, Unavailable)
    assert str(found) == (
        f"What listens at {address.url} says nothing: look whether etcd is stopped or has too much "
        "to do there, or correct --etcd."
    )
