"""The messages from a worker to the writer of event files on its node. Pure.

A frame is its length (4 bytes), its kind (1) and its body. Names are sent with each step as one
block, which both ends keep ready: a script gives the same names at each step.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = [
    "Begin",
    "Histograms",
    "Message",
    "Scalars",
    "name_block",
    "names_of",
    "pack",
    "pack_histograms",
    "pack_scalars",
    "unpack",
]

_HEAD = struct.Struct("<IB")
_STEP = struct.Struct("<dqI")
_STEP_HEAD = struct.Struct("<IBdqI")
_BEGIN, _SCALARS, _HISTOGRAMS = 1, 2, 3
LIMIT_BYTES = 64 << 20
"""The longest frame; one that claims to be longer is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The sender is rank 0 of this generation; first on each connection."""

    generation: int
    step: int
    """Steps that count already; what was done after them in older generations is void. -1 if none,
    or not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalars:
    at_unix_s: float
    step: int
    names: bytes
    """A block made by `name_block`."""
    values: Sequence[float]
    """One for each name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histograms:
    """As `Scalars`; of each name 6 + BINS numbers in a row, which `histogram` explains."""

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
    kind = pack_scalars if isinstance(message, Scalars) else pack_histograms
    return kind(message.at_unix_s, message.step, message.names, message.values)


def pack_scalars(at_unix_s: float, step: int, names: bytes, values: Sequence[float]) -> bytes:
    """Return the frame of a `Scalars`; on the way of every step."""
    size = _STEP.size + len(names) + 8 * len(values)
    head = _STEP_HEAD.pack(size, _SCALARS, at_unix_s, step, len(names))
    return head + names + struct.pack(f"<{len(values)}d", *values)


def pack_histograms(at_unix_s: float, step: int, names: bytes, values: Sequence[float]) -> bytes:
    """Return the frame of a `Histograms`."""
    size = _STEP.size + len(names) + 8 * len(values)
    head = _STEP_HEAD.pack(size, _HISTOGRAMS, at_unix_s, step, len(names))
    return head + names + struct.pack(f"<{len(values)}d", *values)


def unpack(heard: bytearray) -> list[Message]:
    """Take the complete frames from the front of what was received.

    Raises: ValueError: it is no frame of ours.
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
