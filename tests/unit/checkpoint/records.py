"""Small valid records for these tests, and a way to write any JSON as if it were one of ours."""

import json
from typing import Any

from elasticd.checkpoint.format.checksum import text_sum
from elasticd.checkpoint.format.entry import LogEntry, LogEntryKind
from elasticd.checkpoint.format.json_read import with_checksum
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Fragment, Header, Manifest, Part, Piece, Tensor

SNAPSHOT = Snapshot(run=1, generation=2, step=30)
TENSORS = (Tensor("w", "float32", (4, 2)), Tensor("n", "int64", ()), Tensor("e", "bool", (0, 3)))
PARTS = (
    Part("00000-0-0123abcd-00000.bin", 40, ("0" * 16,)),
    Part("00001-0-0123abcd-00000.bin", 16, ("f" * 16,)),
)
PIECES = (
    Piece(0, (0, 0), (2, 2), 0, 0),
    Piece(1, (), (), 0, 16),
    Piece(2, (0, 0), (0, 3), 0, 40),
    Piece(0, (2, 0), (2, 2), 1, 0),
)


def header(shares: int = 2) -> Header:
    return Header(
        snapshot=SNAPSHOT, job="job", uid="uid", epoch=3, world_size=2, shares=shares,
        taken_unix_s=1.5, version="0.1", skeleton='{"a":1}', tensors=TENSORS,
    )  # fmt: skip


def manifest() -> Manifest:
    return Manifest(header=header(), parts=PARTS, pieces=PIECES)


def fragments() -> list[Fragment]:
    """Those that `manifest` is merged from."""
    last = Piece(0, (2, 0), (2, 2), 0, 0)
    return [
        Fragment(snapshot=SNAPSHOT, uid="uid", share=0, shares=2, parts=PARTS[:1],
                 pieces=PIECES[:3], header=header()),
        Fragment(snapshot=SNAPSHOT, uid="uid", share=1, shares=2, parts=PARTS[1:], pieces=(last,),
                 header=None),
    ]  # fmt: skip


def entry(number: int = 3, kind: LogEntryKind = LogEntryKind.COMMITTED) -> LogEntry:
    return LogEntry(
        number=number, kind=kind, snapshot=SNAPSHOT, uid="uid", job="job", kept=(1, number),
        manifest_sum="a" * 32, nbytes=40, at_unix_s=2.5, former=("first", "second"),
    )  # fmt: skip


def changed(text: bytes, **fields: Any) -> bytes:
    """The same record with other fields, sealed again; `...` leaves one out."""
    plain = json.loads(text)
    del plain["sum"]
    plain.update(fields)
    return with_checksum({name: value for name, value in plain.items() if value is not ...})


def sealed_text(body: bytes) -> bytes:
    """Any text that ends with its true checksum, as an attacker can write it."""
    body = body.removesuffix(b"}")
    return body + b',"sum":"' + text_sum(body).encode() + b'"}'
