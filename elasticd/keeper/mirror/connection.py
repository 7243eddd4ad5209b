"""A TCP connection between the keepers of two nodes, on which each proves that it knows the token.

The token itself is never sent. Each side answers the other's random number with an HMAC of both. So
a recorded connection opens nothing later, and a process that has taken the port of a dead keeper
gets neither the token nor a byte of the state. The bytes that follow are neither encrypted nor
authenticated, like the training's collectives.

Every wait has a limit, and no memory is allocated for an unknown client.
"""

import hmac
import secrets
import socket
import time
from collections.abc import Mapping
from typing import Any

from elasticd.channel.wire import pack, unpack
from elasticd.errors import InvariantBroken, Refused
from elasticd.net.framing import read_exactly, read_into, read_message, send_message

__all__ = ["MirrorConnection", "client_handshake", "server_handshake"]

GREETING_LIMIT_S = 5.0
"""The time limit for the proofs: a round trip, and a keeper that is busy with uploads."""
STEP_LIMIT_S = 20.0
"""The time limit for one message, or for one block of bytes: 4 MiB in that time are slower than any
network that trains."""
KEEPALIVES = 4
"""How many questions of the kernel without an answer end a connection."""

_MAGIC = b"elasticd-keeper2"
_NONCE_BYTES = _PROOF_BYTES = 32


class MirrorConnection:
    """The connection once both sides have proved themselves; one thread uses it.

    All methods raise OSError if the other side is gone or too slow, and EOFError if it hung up.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, message: object) -> None:
        self._sock.settimeout(STEP_LIMIT_S)
        send_message(self._sock, pack(message))

    def receive(self, kinds: Mapping[str, type], limit_bytes: int, *, more_s: float = 0.0) -> Any:
        """Return the next message, which must be of one of these kinds and within the size limit.

        The other side may take `more_s` seconds longer than for any message.

        Raises: Refused: the message is something else.
        """
        deadline_s = time.monotonic() + STEP_LIMIT_S + more_s
        try:
            return unpack(read_message(self._sock, limit_bytes, deadline_s), kinds)
        except InvariantBroken as exc:
            raise Refused(str(exc)[:200]) from exc

    def watch(self) -> None:
        """Notice within some `STEP_LIMIT_S` that the other side's host is gone, also in a longer
        wait.
        """
        pause_s = max(1, round(STEP_LIMIT_S) // KEEPALIVES)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, True)
        for option, value in (
            (socket.TCP_KEEPIDLE, pause_s),
            (socket.TCP_KEEPINTVL, pause_s),
            (socket.TCP_KEEPCNT, KEEPALIVES - 1),
        ):
            self._sock.setsockopt(socket.IPPROTO_TCP, option, value)

    def send_block(self, block: memoryview) -> None:
        self._sock.settimeout(STEP_LIMIT_S)
        self._sock.sendall(block)

    def receive_block(self, place: memoryview) -> None:
        """Fill `place` with the next bytes."""
        read_into(self._sock, place, time.monotonic() + STEP_LIMIT_S)


def client_handshake(sock: socket.socket, token: str) -> MirrorConnection:
    """Prove to the keeper at the other end that we know its token, and check that it does.

    Raises: Refused: the other end is no keeper, or another one. OSError, EOFError: the other end is
        gone, or hung up, as a keeper does if the token is wrong.
    """
    deadline_s = time.monotonic() + GREETING_LIMIT_S
    said = bytes(read_exactly(sock, len(_MAGIC) + _NONCE_BYTES, deadline_s))
    if said[: len(_MAGIC)] != _MAGIC:
        raise Refused("The process that listens there is no keeper of this version.")
    theirs, ours = said[len(_MAGIC) :], secrets.token_bytes(_NONCE_BYTES)
    sock.settimeout(GREETING_LIMIT_S)
    sock.sendall(ours + _proof(token, b"comes", theirs, ours))
    proof = bytes(read_exactly(sock, _PROOF_BYTES, deadline_s))
    if not hmac.compare_digest(proof, _proof(token, b"hosts", theirs, ours)):
        raise Refused("The process that listens there does not know its own token.")
    return MirrorConnection(sock)


def server_handshake(sock: socket.socket, token: str) -> MirrorConnection:
    """Check that the client knows our token, and prove the same to it.

    Raises: Refused: the client does not know it. OSError, EOFError: the client is gone, hung up, or
        takes too long.
    """
    deadline_s = time.monotonic() + GREETING_LIMIT_S
    ours = secrets.token_bytes(_NONCE_BYTES)
    sock.settimeout(GREETING_LIMIT_S)
    sock.sendall(_MAGIC + ours)
    said = bytes(read_exactly(sock, _NONCE_BYTES + _PROOF_BYTES, deadline_s))
    theirs, proof = said[:_NONCE_BYTES], said[_NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(token, b"comes", ours, theirs)):
        raise Refused("Somebody connected who does not know the token.")
    sock.sendall(_proof(token, b"hosts", ours, theirs))
    return MirrorConnection(sock)


def _proof(token: str, side: bytes, host: bytes, comer: bytes) -> bytes:
    return hmac.digest(token.encode(), _MAGIC + side + host + comer, "sha256")
