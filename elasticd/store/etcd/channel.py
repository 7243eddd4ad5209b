"""One gRPC channel to one address of etcd, and the calls that elasticd makes on it."""

import os
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

from elasticd.errors import CallError
from elasticd.store.address import Address
from elasticd.store.api import StoreSettings
from elasticd.store.etcd.stubs import install
from elasticd.store.real_user import reading_as_real_user

install()

# What gRPC's core reads once, while it is imported; workers must not inherit our values.
_WHILE_IMPORTED = {
    # It writes failed handshakes to stderr on its own, where we say them in one sentence.
    "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "NONE"),
    # Its handlers of fork start its threads in the child, which poll with what the threads of the
    # parent have left in the middle of their work: half of the processes that an agent starts as
    # another user (only there Python forks, and does not vfork) ended so before their exec.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}
_found = {name: os.environ.get(name) for name in _WHILE_IMPORTED}
os.environ.update(_WHILE_IMPORTED)
import grpc  # noqa: E402
from grpc import _common  # noqa: E402

for _name, _value in _found.items():
    if _value is None:
        del os.environ[_name]
    else:
        os.environ[_name] = _value

from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc  # noqa: E402

__all__ = ["Channel", "Rpc", "rpc_pb2", "rpc_pb2_grpc", "tls_file_stamps"]

Metadata = Sequence[tuple[str, str]]

# A thread in wait for a stream's next answer wakes ten times a second, so that Python could run
# signal handlers if it were the main thread (grpc issue 19464). Ours never is, and the waking was
# a third of an idle agent's CPU; once a second it still is a twentieth. An answer, an error and the
# end of a channel wake it at once. Should the name go away, only that saving does.
if hasattr(_common, "MAXIMUM_WAIT_TIMEOUT"):
    _common.MAXIMUM_WAIT_TIMEOUT = 30.0

_OPTIONS: tuple[tuple[str, int], ...] = (
    # A list or a watch's answer may be larger than gRPC's default of 4 MiB; etcd sets no limit.
    ("grpc.max_receive_message_length", -1),
    # Find a peer that went silent within 15 s. etcd hangs up on pings more frequent than 5 s, or
    # on a connection without any call (its enforcement policy), so neither is done.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # A restarted etcd is back within a fraction of a lease. gRPC adds a jitter of 20 %.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # We repeat calls ourselves: only we know which may be repeated.
    ("grpc.enable_retries", 0),
    # No ping beside each answer to find out how much may be under way: an agent without a job spent
    # a quarter of its time on those. As much as this suits a world of 10,000 nodes as well.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1024**2),
    # A proxy set for downloads (http_proxy) must not catch the traffic to etcd.
    ("grpc.enable_http_proxy", 0),
    # No connection shared with another channel to the same address: `close` must really close.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.service_config_disable_resolution", 1),
)


class Rpc(StrEnum):
    RANGE = "range"
    TXN = "txn"
    LEASE_GRANT = "lease grant"
    LEASE_KEEPALIVE = "lease keepalive"
    LEASE_REVOKE = "lease revoke"
    AUTHENTICATE = "authenticate"
    STATUS = "status"


class Channel:
    """Connects at the first call, and again by itself."""

    def __init__(self, address: Address, settings: StoreSettings) -> None:
        """Open the channel. It reads the TLS files, so a new channel sees renewed certificates.

        Raises: CallError: a TLS file cannot be read.
        """
        self.address = address
        self.tls_stamps = tls_file_stamps(settings)
        self.answered_s = 0.0
        """On the monotonic clock: when the other side was last heard."""
        if address.is_tls:
            self._channel = grpc.secure_channel(
                address.target, _credentials(settings), options=_OPTIONS
            )
        else:
            self._channel = grpc.insecure_channel(address.target, options=_OPTIONS)
        kv = rpc_pb2_grpc.KVStub(self._channel)
        lease = rpc_pb2_grpc.LeaseStub(self._channel)
        self._calls = {
            Rpc.RANGE: kv.Range,
            Rpc.TXN: kv.Txn,
            Rpc.LEASE_GRANT: lease.LeaseGrant,
            Rpc.LEASE_REVOKE: lease.LeaseRevoke,
            Rpc.AUTHENTICATE: rpc_pb2_grpc.AuthStub(self._channel).Authenticate,
            Rpc.STATUS: rpc_pb2_grpc.MaintenanceStub(self._channel).Status,
            # A stream in etcd's API. On the wire a stream of one request and one answer is the
            # same as a plain call, and a plain call needs no thread and has a deadline.
            Rpc.LEASE_KEEPALIVE: self._channel.unary_unary(
                "/etcdserverpb.Lease/LeaseKeepAlive",
                request_serializer=rpc_pb2.LeaseKeepAliveRequest.SerializeToString,
                response_deserializer=rpc_pb2.LeaseKeepAliveResponse.FromString,
            ),
        }
        self._watch = rpc_pb2_grpc.WatchStub(self._channel).Watch

    def call(self, rpc: Rpc, request: Any, *, timeout_s: float, metadata: Metadata) -> Any:
        """Do one call.

        Raises:
            grpc.RpcError: the call failed.
            ValueError: the channel was closed meanwhile.
        """
        try:
            response = self._calls[rpc](request, timeout=timeout_s, metadata=metadata)
        except grpc.RpcError as exc:
            if str(exc.details() or "").startswith("etcdserver:"):
                self.mark_answered()
            raise
        self.mark_answered()
        return response

    def watch(self, requests: Iterator[Any], metadata: Metadata) -> Any:
        """Open the stream of watches: an iterator of answers that can be cancelled."""
        return self._watch(requests, metadata=metadata)

    def mark_answered(self) -> None:
        self.answered_s = time.monotonic()

    def close(self) -> None:
        """Abort all calls and streams on the channel."""
        self._channel.close()


def tls_file_stamps(settings: StoreSettings) -> tuple[float, ...]:
    """Return when the TLS files were last written, which shows that a certificate was renewed."""
    stamps = []
    for path in (settings.ca_file, settings.cert_file, settings.key_file):
        try:
            with reading_as_real_user():
                stamps.append(os.stat(path).st_mtime if path else 0.0)
        except OSError:
            stamps.append(-1.0)
    return tuple(stamps)


def _credentials(settings: StoreSettings) -> Any:
    if bool(settings.cert_file) != bool(settings.key_file):
        raise CallError("A client certificate for etcd needs both files, certificate and key.")
    return grpc.ssl_channel_credentials(
        root_certificates=_read(settings.ca_file),
        private_key=_read(settings.key_file),
        certificate_chain=_read(settings.cert_file),
    )


def _read(path: str) -> bytes | None:
    if not path:
        return None
    try:
        with reading_as_real_user(), open(path, "rb") as file:
            return file.read()
    except OSError as exc:
        raise CallError(f"The TLS file {path} cannot be read ({exc.strerror}).") from exc
