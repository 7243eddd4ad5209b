"""What a checkpoint consists of: tensors, the pieces into which they were cut, the parts in which
these lie.

A manifest is JSON, and a reader does not trust it: otherwise anybody who can write to the bucket
could make a reader allocate an exabyte or open `../`. Every number is checked against a limit and
against the others before the reader uses it. Rejected: pickle (it runs code), and safetensors as
the format (it has one header in front of the data, so it cannot be streamed while it is made, and
it has no checksums); `export` writes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import prod
from typing import Any, Self

from elasticd.checkpoint.format import json_read
from elasticd.checkpoint.format.box_cover import uncovered
from elasticd.checkpoint.format.checksum import BLOCK_BYTES
from elasticd.checkpoint.format.json_read import Damaged, value_text, with_checksum
from elasticd.checkpoint.format.layout import Snapshot, is_part_name

__all__ = [
    "BLOCK_BYTES",
    "DTYPE_BYTES",
    "Damaged",
    "Fragment",
    "Header",
    "Manifest",
    "Part",
    "Piece",
    "Tensor",
    "merged",
]

FORMAT = 1

TEXT_LIMIT_BYTES = 256 << 20
TENSOR_LIMIT = 1_000_000
PIECE_LIMIT = 10_000_000
PART_LIMIT = 1_000_000
PART_LIMIT_BYTES = 5 << 30
"""The most that one request may write to S3."""
DIMENSION_LIMIT = 64
ELEMENT_LIMIT = 1 << 48

DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2,
    "int8": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1, "complex32": 4,
    "complex64": 8, "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""The bytes of an element; little endian."""


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a tensor, and where its elements stand, in row-major order."""

    tensor: int
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    part: int
    at: int
    """The offset of its first byte in the part."""


@dataclass(frozen=True, slots=True)
class Part:
    """One object: its name in the checkpoint's folder, its size, and a checksum of each block."""

    name: str
    size: int
    sums: tuple[str, ...]
    """The XXH3-64 of each 4 MiB, in hexadecimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What is known of the whole state before any byte of it is uploaded."""

    snapshot: Snapshot
    job: str
    uid: str
    epoch: int
    world_size: int
    shares: int
    taken_unix_s: float
    """The time for people; no decision uses it."""
    version: str
    """The version of elasticd."""
    skeleton: str
    """All that is no tensor, as `elasticd.tensors.tree` writes it."""
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """What one holder uploaded of one share; `header` is set in share 0."""

    snapshot: Snapshot
    uid: str
    """The uid of the run that wrote it. Where a storage let two runs have one number, their
    snapshots have the same names; what they uploaded must not become one checkpoint."""
    share: int
    shares: int
    parts: tuple[Part, ...]
    pieces: tuple[Piece, ...]
    header: Header | None

    def to_json(self) -> bytes:
        return with_checksum(
            {
                "format": FORMAT,
                **asdict(self.snapshot),
                "uid": self.uid,
                "share": self.share,
                "shares": self.shares,
                "parts": _plain_parts(self.parts),
                "pieces": _plain_pieces(self.pieces),
                "header": _plain_header(self.header) if self.header is not None else None,
            }
        )

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Read a fragment that another holder wrote.

        Raises:
            Damaged: the text is no valid fragment.
        """
        fields = json_read.document(text, TEXT_LIMIT_BYTES, FORMAT)
        parts = _parts(fields)
        snapshot = Snapshot.from_plain(fields)
        return cls(
            snapshot=snapshot,
            uid=json_read.text(fields, "uid"),
            share=json_read.integer(fields, "share", PART_LIMIT),
            shares=json_read.integer(fields, "shares", PART_LIMIT, least=1),
            parts=parts,
            pieces=_pieces(fields, len(parts)),
            header=None if fields.get("header") is None else _header(fields["header"], snapshot),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A whole checkpoint; one that was read covers every tensor exactly once."""

    header: Header
    parts: tuple[Part, ...]
    pieces: tuple[Piece, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.header.tensors)

    def to_json(self) -> bytes:
        return with_checksum(
            {
                "format": FORMAT,
                **asdict(self.header.snapshot),
                "header": _plain_header(self.header),
                "parts": _plain_parts(self.parts),
                "pieces": _plain_pieces(self.pieces),
            }
        )

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Read and check a manifest.

        Raises:
            Damaged: something is missing, doubled, too large or not what it should be.
        """
        fields = json_read.document(text, TEXT_LIMIT_BYTES, FORMAT)
        parts = _parts(fields)
        found = cls(
            header=_header(fields.get("header"), Snapshot.from_plain(fields)),
            parts=parts,
            pieces=_pieces(fields, len(parts)),
        )
        found.check()
        return found

    def check(self) -> None:
        """Raise Damaged unless the pieces cover every element of every tensor exactly once.

        One byte of a part may not serve two elements either: else a small object could describe a
        large state.
        """
        boxes: list[list[tuple[tuple[int, ...], tuple[int, ...]]]] = [
            [] for _ in self.header.tensors
        ]
        spans: list[tuple[int, int, int]] = []
        for piece in self.pieces:
            if piece.tensor >= len(boxes):
                raise Damaged(f"A piece belongs to tensor {piece.tensor}, which does not exist.")
            tensor = self.header.tensors[piece.tensor]
            end = piece.at + prod(piece.shape) * DTYPE_BYTES[tensor.dtype]
            if end > self.parts[piece.part].size:
                raise Damaged(f"A piece of {tensor.name} reaches beyond the end of its part.")
            boxes[piece.tensor].append((piece.offsets, piece.shape))
            if end > piece.at:
                spans.append((piece.part, piece.at, end))
        spans.sort()
        for (part, _, end), (next_part, start, _) in pairwise(spans):
            if part == next_part and start < end:
                raise Damaged(f"Two pieces have bytes of {self.parts[part].name} in common.")
        for tensor, held in zip(self.header.tensors, boxes, strict=True):
            why = uncovered(tensor.shape, held)
            if why:
                raise Damaged(f"{tensor.name} is not whole: {why}.")


def merged(fragments: Sequence[Fragment]) -> Manifest:
    """Put the fragments of all shares together, in the order of the shares.

    Raises:
        Damaged: the fragments do not make a whole state.
    """
    header = fragments[0].header if fragments else None
    if header is None:
        raise Damaged("The first share has no header.")
    parts: list[Part] = []
    pieces: list[Piece] = []
    for share, fragment in enumerate(fragments):
        given = fragment.share, fragment.shares, fragment.snapshot, fragment.uid
        if given != (share, header.shares, header.snapshot, header.uid):
            raise Damaged(f"Share {share} belongs to something else.")
        first = len(parts)
        parts += fragment.parts
        pieces += [
            Piece(p.tensor, p.offsets, p.shape, first + p.part, p.at) for p in fragment.pieces
        ]
    if header.shares != len(fragments):
        raise Damaged(f"There are {len(fragments)} shares of {header.shares}.")
    found = Manifest(header=header, parts=tuple(parts), pieces=tuple(pieces))
    found.check()
    return found


# --- to JSON ------------------------------------------------------------------------------------


def _plain_header(header: Header) -> dict[str, Any]:
    return {
        "job": header.job,
        "uid": header.uid,
        "epoch": header.epoch,
        "world_size": header.world_size,
        "shares": header.shares,
        "taken_unix_s": header.taken_unix_s,
        "version": header.version,
        "skeleton": header.skeleton,
        "tensors": [[each.name, each.dtype, each.shape] for each in header.tensors],
    }


def _plain_parts(parts: Sequence[Part]) -> list[Any]:
    return [[each.name, each.size, "".join(each.sums)] for each in parts]


def _plain_pieces(pieces: Sequence[Piece]) -> list[Any]:
    return [[each.tensor, each.offsets, each.shape, each.part, each.at] for each in pieces]


# --- from JSON ----------------------------------------------------------------------------------


def _header(fields: Any, snapshot: Snapshot) -> Header:
    if not isinstance(fields, dict):
        raise Damaged("It has no header.")
    tensors = []
    for row in json_read.rows(fields, "tensors", TENSOR_LIMIT, 3):
        name, dtype, shape = row
        if not isinstance(name, str) or not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
            raise Damaged(f"A tensor has the name {value_text(name)} and type {value_text(dtype)}.")
        tensors.append(Tensor(name, dtype, _sizes(shape)))
    return Header(
        snapshot=snapshot,
        job=json_read.text(fields, "job"),
        uid=json_read.text(fields, "uid"),
        epoch=json_read.integer(fields, "epoch", 1 << 53),
        world_size=json_read.integer(fields, "world_size", PART_LIMIT),
        shares=json_read.integer(fields, "shares", PART_LIMIT, least=1),
        taken_unix_s=json_read.number(fields, "taken_unix_s"),
        version=json_read.text(fields, "version"),
        skeleton=json_read.text(fields, "skeleton", TEXT_LIMIT_BYTES),
        tensors=tuple(tensors),
    )


def _parts(fields: Mapping[str, Any]) -> tuple[Part, ...]:
    parts = []
    for name, size, sums in json_read.rows(fields, "parts", PART_LIMIT, 3):
        if not isinstance(name, str) or not is_part_name(name):
            raise Damaged(f"{value_text(name)} is no name of a part.")
        json_read.check_integer("size", size, PART_LIMIT_BYTES)
        blocks = -(-size // BLOCK_BYTES)
        if not isinstance(sums, str) or len(sums) != 16 * blocks:
            raise Damaged(f"{name} of {size} bytes does not have {blocks} checksums.")
        cut = tuple(sums[16 * index : 16 * index + 16] for index in range(blocks))
        parts.append(Part(name, size, cut))
    return tuple(parts)


def _pieces(fields: Mapping[str, Any], parts: int) -> tuple[Piece, ...]:
    pieces = []
    for tensor, offsets, shape, part, at in json_read.rows(fields, "pieces", PIECE_LIMIT, 5):
        json_read.check_integer("tensor", tensor, TENSOR_LIMIT)
        json_read.check_integer("part", part, parts - 1)
        json_read.check_integer("at", at, PART_LIMIT_BYTES)
        pieces.append(Piece(tensor, _sizes(offsets), _sizes(shape), part, at))
    return tuple(pieces)


def _sizes(sizes: Any) -> tuple[int, ...]:
    if not isinstance(sizes, list) or len(sizes) > DIMENSION_LIMIT:
        raise Damaged("A shape is no short list.")
    for size in sizes:
        json_read.check_integer("size", size, ELEMENT_LIMIT)
    if prod(sizes) > ELEMENT_LIMIT:
        raise Damaged(f"A tensor of the shape {str(sizes)[:100]} is too large to be true.")
    return tuple(sizes)
