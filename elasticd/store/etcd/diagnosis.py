"""Finds out why etcd does not answer, and says it in one sentence.

gRPC reports a dead host, a wrong certificate and plain http on a TLS port all as UNAVAILABLE, with
a low-level text. So when a call has failed for good, each address is tried once more by hand: a
socket, a TLS handshake, the first bytes of HTTP/2, then etcd's own status.
"""

import socket
import ssl
import time
from collections.abc import Sequence

import grpc

from elasticd.errors import ElasticdError, Refused, Unavailable
from elasticd.store.address import Address
from elasticd.store.api import StoreSettings
from elasticd.store.etcd.channel import Channel, Rpc, rpc_pb2
from elasticd.store.etcd.failure import EtcdFailure
from elasticd.store.real_user import reading_as_real_user

__all__ = ["diagnose"]

_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_LONGEST_S = 1.0
_SHORTEST_S = 0.1


def diagnose(
    addresses: Sequence[Address], settings: StoreSettings, failure: EtcdFailure, *, limit_s: float
) -> ElasticdError:
    """Return the error to raise, by `limit_s` on the monotonic clock (a little later at worst).

    An address where etcd answers says more than one that is dead, so it goes first; a wrong
    certificate is only reported if no address is better.
    """
    answering: list[Address] = []
    problems: list[ElasticdError] = []
    for place, address in enumerate(addresses):
        left_s = (limit_s - time.monotonic()) / (len(addresses) - place)
        try:
            found = _probe(address, settings, min(max(left_s, _SHORTEST_S), _LONGEST_S))
        except OSError:  # Refused, no route, no such name, or silent: the plain case.
            continue
        if found is None:
            answering.append(address)
        else:
            problems.append(found)
    if answering:
        return _quorum(answering, settings, failure)
    if problems:
        return next((error for error in problems if isinstance(error, Refused)), problems[0])
    urls = ", ".join(address.url for address in addresses)
    return Unavailable(f"No etcd answers at {urls}: start it or correct --etcd.")


def _quorum(
    answering: Sequence[Address], settings: StoreSettings, failure: EtcdFailure
) -> ElasticdError:
    urls = ", ".join(address.url for address in answering)
    if not any(_has_leader(address, settings) for address in answering):
        return Unavailable(
            f"etcd at {urls} answers but has no leader: a majority of its members must be up."
        )
    if failure.is_silence or failure.address not in answering:
        return Unavailable(
            f"etcd at {urls} answers but did not carry out the request in time: look at its load"
            " and its disk."
        )
    return failure.error


def _has_leader(address: Address, settings: StoreSettings) -> bool:
    channel = Channel(address, settings)
    try:
        status = channel.call(
            Rpc.STATUS, rpc_pb2.StatusRequest(), timeout_s=_LONGEST_S / 2, metadata=()
        )
    except grpc.RpcError:
        return False
    finally:
        channel.close()
    return bool(status.leader)


def _probe(address: Address, settings: StoreSettings, timeout_s: float) -> ElasticdError | None:
    """Return None if HTTP/2 is spoken there as expected, otherwise what is wrong.

    Raises: OSError: nobody is there.
    """
    if address.is_tls:
        return _probe_tls(address, settings, timeout_s)
    greets = _speaks_http2(address, timeout_s)
    if greets:
        return None
    if _speaks_tls(address, timeout_s):
        return Refused(
            f"etcd at {address.url} speaks TLS: write https instead of http, and give the CA file."
        )
    return _silent(address) if greets is None else _no_etcd(address)


def _probe_tls(address: Address, settings: StoreSettings, timeout_s: float) -> ElasticdError | None:
    try:
        context = _context(settings)
    except (ssl.SSLError, OSError) as exc:
        return Refused(
            f"The TLS files for etcd at {address.url} do not work ({exc}): check the CA file, and"
            " that the key file belongs to the certificate file."
        )
    with _connect(address, timeout_s) as plain:
        try:
            # With TLS 1.3 a refused client certificate shows only at the first read.
            with context.wrap_socket(plain, server_hostname=address.host) as secure:
                greets = _greets_http2(secure)
            if greets:
                return None
            return _silent(address) if greets is None else _no_etcd(address)
        except ssl.SSLCertVerificationError as exc:
            return Refused(
                f"The certificate of etcd at {address.url} is not trusted ({exc.verify_message}):"
                " check the CA file and the host in --etcd."
            )
        except ssl.SSLError as exc:
            reason = _reason(exc)
        except ConnectionError as exc:
            # A server without TLS that hangs up with our hello unread: so etcd does at times.
            reason = (exc.strerror or str(exc)).lower()
    if "alert" in reason:
        return Refused(
            f"etcd at {address.url} refused our client certificate ({reason}): check the"
            " certificate and the key file."
        )
    if _speaks_http2(address, timeout_s):
        return Refused(f"etcd at {address.url} does not speak TLS: write http instead of https.")
    return Unavailable(f"The TLS handshake with etcd at {address.url} failed ({reason}).")


def _no_etcd(address: Address) -> ElasticdError:
    return Unavailable(f"What answers at {address.url} is no etcd: correct --etcd.")


def _silent(address: Address) -> ElasticdError:
    return Unavailable(
        f"What listens at {address.url} says nothing: look whether etcd is stopped or has too much "
        "to do there, or correct --etcd."
    )


def _context(settings: StoreSettings) -> ssl.SSLContext:
    with reading_as_real_user():
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.cert_file and settings.key_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        return context


def _connect(address: Address, timeout_s: float) -> socket.socket:
    if not address.path:
        return socket.create_connection((address.host, address.port), timeout=timeout_s)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(timeout_s)
    try:
        connected.connect(address.path)
    except OSError:
        connected.close()
        raise
    return connected


def _speaks_tls(address: Address, timeout_s: float) -> bool:
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    with _connect(address, timeout_s) as plain:
        try:
            unverified.wrap_socket(plain, server_hostname=address.host).close()
        except ssl.SSLError as exc:
            return "alert" in _reason(exc)  # It asks for a certificate of ours, in TLS.
        except OSError:
            return False
    return True


def _speaks_http2(address: Address, timeout_s: float) -> bool | None:
    with _connect(address, timeout_s) as plain:
        return _greets_http2(plain)


def _greets_http2(connected: socket.socket) -> bool | None:
    """Return whether the other side greets back with a SETTINGS frame (type 4); None if it says
    nothing in time.
    """
    try:
        connected.sendall(_HTTP2_HELLO)
        answer = connected.recv(9)
    except ssl.SSLError:
        raise
    except TimeoutError:
        return None
    except OSError:  # It hung up.
        return False
    return len(answer) >= 4 and answer[3] == 4


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "").lower().replace("_", " ")
