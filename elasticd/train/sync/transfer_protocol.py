"""The messages between a source and a target of a state transfer, over a plain TCP connection.

The target sends a hello, with the token that only readers of the generation's store know, and then
asks; the source answers each request with exactly the bytes asked for, and sends a checksum after
the bytes of a tensor, because TCP's own checksum has 16 bits. By the same checksum a target finds
the pieces that it has already. No pickle, nothing nested but one JSON text, sizes checked on both
sides.
"""

import hmac
import json
import socket
import struct
from dataclasses import dataclass

import torch
import xxhash

from elasticd.errors import Fenced, InvariantBroken
from elasticd.net.framing import read_exactly, read_into, read_message

__all__ = [
    "REQUEST_LIMIT_BYTES",
    "PIECE_BYTES",
    "SUM_BYTES",
    "TransferRequest",
    "TransferManifest",
    "read_request",
    "read_summed",
    "read_text",
    "say_hello",
    "sum_of",
    "verify_hello",
]

REQUEST_LIMIT_BYTES = 4 << 20
"""The most bytes of one answer: small enough to divide among connections, large beside a round
trip."""

PIECE_BYTES = 1 << 20
"""The size that is compared at once: a difference costs at most this much of unnecessary
copying."""

TEXT_LIMIT_BYTES = 256 << 20

_HELLO = struct.Struct("<16s32sQI")
_MAGIC = b"elasticd-heal-1\n"
_REQUEST = struct.Struct("<BIQQ")
SUM_BYTES = 8

MANIFEST, DIGESTS, BYTES = 1, 2, 3

_DTYPES = {str(kind): kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """A request: for the manifest, for digests of pieces, or for bytes of a tensor."""

    kind: int
    tensor: int = 0
    start: int = 0
    length: int = 0

    def send(self, line: socket.socket) -> None:
        line.sendall(_REQUEST.pack(self.kind, self.tensor, self.start, self.length))


@dataclass(frozen=True, slots=True)
class TransferManifest:
    """A state without the contents of its tensors."""

    skeleton: str
    tensors: tuple[tuple[torch.dtype, tuple[int, ...], str], ...]
    """For each tensor its type, its shape and the type of its device."""

    def to_json(self) -> bytes:
        plain = [[str(dtype), shape, kind] for dtype, shape, kind in self.tensors]
        return json.dumps([self.skeleton, plain]).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "TransferManifest":
        """Read a source's manifest.

        Raises: Fenced: the text is no manifest.
        """
        try:
            skeleton, plain = json.loads(text)
            tensors = tuple(
                (_DTYPES[dtype], tuple(int(size) for size in shape), str(kind))
                for dtype, shape, kind in plain
            )
        except (ValueError, KeyError, TypeError) as exc:
            raise Fenced(f"A state's manifest cannot be read: {exc}.") from exc
        return cls(str(skeleton), tensors)


def say_hello(line: socket.socket, token: str, generation: int, rank: int) -> None:
    line.sendall(_HELLO.pack(_MAGIC, token.encode(), generation, rank))


def verify_hello(line: socket.socket, token: str, generation: int) -> int | None:
    """Return the rank that greets with this token in this generation; None if the greeting is
    wrong.
    """
    magic, theirs, number, rank = _HELLO.unpack(read_exactly(line, _HELLO.size))
    is_ours = hmac.compare_digest(theirs, token.encode())
    return int(rank) if magic == _MAGIC and is_ours and number == generation else None


def read_request(line: socket.socket) -> TransferRequest | None:
    """Return the next request; None when the target hung up."""
    try:
        return TransferRequest(*_REQUEST.unpack(read_exactly(line, _REQUEST.size)))
    except EOFError:
        return None


def read_text(line: socket.socket) -> bytes:
    """Receive the next text from the other rank.

    Raises: Fenced: the announced text is longer than any state's skeleton.
    """
    try:
        return read_message(line, TEXT_LIMIT_BYTES)
    except InvariantBroken as exc:
        raise Fenced(str(exc)) from exc


def read_summed(line: socket.socket, place: memoryview) -> None:
    """Fill `place` with bytes of a tensor.

    Raises:
        EOFError: the other side hung up before, or what came is not what it sent.
    """
    whole = place
    read_into(line, place)
    if bytes(read_exactly(line, SUM_BYTES)) != sum_of(whole):
        raise EOFError("bytes were damaged on the way")


def sum_of(data: memoryview) -> bytes:
    """Return the XXH3-64, which is as fast as memory and lets other threads run meanwhile; it
    protects from accidents, not from attackers: the token decides who may connect.
    """
    return xxhash.xxh3_64_digest(data)
