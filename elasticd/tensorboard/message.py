"""The messages from a worker to the writer of event files on its node. Pure.

A frame is its length (4 bytes), its kind (1 byte) and its body. Names are sent with each step as
one block, which both ends keep, since a script gives the same names at each step.

Rejected: the frames of `elasticd.net.framing`. Its writer makes a message and its length one after
the other, and its reader waits for a whole message. Here one call of one prepared format makes a
step's frame, head included, since every step makes this call; and the process that writes files
takes all frames that have arrived, some hundred at a time, and waits for none.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = [
    "Begin",
    "Histograms",
    "Message",
    "ScalarPacker",
    "Scalars",
    "name_block",
    "names_of",
    "pack",
    "pack_histograms",
    "unpack",
]

_HEAD = struct.Struct("<IB")
_STEP = struct.Struct("<dqI")
_STEP_HEAD = "<IBdqI"
_BEGIN, _SCALARS, _HISTOGRAMS = 1, 2, 3
LIMIT_BYTES = 64 << 20
"""The size limit of a frame in bytes; a frame whose head has a larger size is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The message that the sender is rank 0 of this generation; the first on a connection."""

    generation: int
    step: int
    """The number of steps that count already; later steps of older generations are void. -1 if
    there are none, or if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalars:
    at_unix_s: float
    step: int
    names: bytes
    """A block made by `name_block`."""
    values: Sequence[float]
    """The values, one for each name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histograms:
    """The same as `Scalars`, with 6 + BINS numbers for each name, which `histogram` explains."""

    at_unix_s: float
    step: int
    names: bytes
    values: Sequence[float] = field(default_factory=tuple)


Message = Begin | Scalars | Histograms


def name_block(names: Sequence[str]) -> bytes:
    """Return names of any text as one block."""
    return json.dumps(list(names)).encode()


def names_of(block: bytes) -> list[str]:
    found: list[str] = json.loads(block)
    return found


def pack(message: Message) -> bytes:
    """Return the frame of a message."""
    if isinstance(message, Begin):
        body = struct.pack("<qq", message.generation, message.step)
        return _HEAD.pack(len(body), _BEGIN) + body
    if isinstance(message, Scalars):
        packer = ScalarPacker(message.names, len(message.values))
        return packer.pack(message.at_unix_s, message.step, message.values)
    return pack_histograms(message.at_unix_s, message.step, message.names, message.values)


class ScalarPacker:
    """Packs the numbers of steps that have the same names.

    Every step makes this call, so it is one call of one prepared format.
    """

    def __init__(self, names: bytes, count: int, kind: int = _SCALARS) -> None:
        """`count` is the number of values of a step."""
        self._format = struct.Struct(f"{_STEP_HEAD}{len(names)}s{count}d")
        self._names, self._kind = names, kind
        self._size = self._format.size - _HEAD.size

    def pack(self, at_unix_s: float, step: int, values: Sequence[float]) -> bytes:
        names = self._names
        return self._format.pack(
            self._size, self._kind, at_unix_s, step, len(names), names, *values
        )


def pack_histograms(at_unix_s: float, step: int, names: bytes, values: Sequence[float]) -> bytes:
    """Return the frame of a `Histograms`."""
    return ScalarPacker(names, len(values), _HISTOGRAMS).pack(at_unix_s, step, values)


def unpack(heard: bytearray) -> list[Message]:
    """Remove the complete frames from the front of the received bytes, and return their messages.

    Raises: ValueError: the bytes are not a frame of elasticd.
    """
    found: list[Message] = []
    start = 0
    while len(heard) - start >= _HEAD.size:
        size, kind = _HEAD.unpack_from(heard, start)
        if size > LIMIT_BYTES:
            raise ValueError(f"a frame of {size} bytes")
        end = start + _HEAD.size + size
        if end > len(heard):
            break
        found.append(_message(kind, bytes(heard[start + _HEAD.size : end])))
        start = end
    del heard[:start]
    return found


def _message(kind: int, body: bytes) -> Message:
    try:
        if kind == _BEGIN:
            generation, step = struct.unpack("<qq", body)
            return Begin(generation=generation, step=step)
        at_unix_s, step, length = _STEP.unpack_from(body)
        rest = body[_STEP.size + length :]
        values = struct.unpack(f"<{len(rest) // 8}d", rest)
        names = body[_STEP.size : _STEP.size + length]
    except struct.error as exc:
        raise ValueError(f"a frame that cannot be read: {exc}") from exc
    if kind == _SCALARS:
        return Scalars(at_unix_s=at_unix_s, step=step, names=names, values=values)
    if kind == _HISTOGRAMS:
        return Histograms(at_unix_s=at_unix_s, step=step, names=names, values=values)
    raise ValueError(f"a frame of kind {kind}")
