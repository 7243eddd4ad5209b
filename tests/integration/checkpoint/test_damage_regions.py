"""Damage to every single byte of a small checkpoint, and to each of its regions as a whole.

A region is a token of a text, or one piece of a tensor in a part. What is needed is known, so each
damage has one right answer: the newest checkpoint where nothing needs what was damaged, else the
one before, bit for bit, and a sentence that says so. `test_damage.py` has others, on a disk.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import pytest

from elasticd.checkpoint.commit.committer import read_manifest
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import HINT, Snapshot, entry_name, fragment_name
from elasticd.checkpoint.format.manifest import Fragment, Manifest
from elasticd.checkpoint.storage.bucket import Bucket, ObjectMissing
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket
from tests.integration.checkpoint.saving_case import (
    NEW,
    OLD,
    SHARES,
    Values,
    committer,
    loaded_manifest,
    save_two,
    uploaded,
    values,
)

NEWEST_ENTRY = entry_name(3)
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+.\w]+|[\[\]{}:,]')
LIMIT_BYTES = 1 << 20


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Two checkpoints of several parts each, in memory."""
    found = FsspecBucket(f"memory://{secrets.token_hex(8)}/run", {})
    save_two(found, monkeypatch)
    return found


def newest(bucket: Bucket) -> Manifest:
    return read_manifest(bucket, CommitLog(bucket).entry(3))


def parts(bucket: Bucket) -> list[str]:
    return [f"{NEW.folder}/{part.name}" for part in newest(bucket).parts]


def edges(bucket: Bucket, name: str, data: bytes) -> list[int]:
    """Where the regions of an object begin, and its end."""
    if not name.endswith(".bin"):
        return sorted({0, *(found.start() for found in TOKEN.finditer(data)), len(data)})
    manifest = newest(bucket)
    mine = [
        piece.at
        for piece in manifest.pieces
        if name.endswith(manifest.parts[piece.part].name) and piece.at < len(data)
    ]
    return sorted({0, *mine, len(data)})


def flips(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Each byte once, every bit in its turn; so each field has several others."""
    for place, byte in enumerate(data):
        flipped = bytes([byte ^ 1 << place % 8])
        yield f"bit {place % 8} of byte {place}", data[:place] + flipped + data[place + 1 :]


def regional(data: bytes, starts: list[int]) -> Iterator[tuple[str, bytes]]:
    """Each region cut off with all behind it, left out, said twice, overwritten; and its bytes at
    the beginning, in the middle and at the end."""
    for start, end in pairwise(starts):
        region = data[start:end]
        yield f"cut to {start}", data[:start]
        yield f"without {start} to {end}", data[:start] + data[end:]
        yield f"{start} to {end} twice", data[:end] + data[start:]
        yield f"zeros from {start} to {end}", data[:start] + bytes(len(region)) + data[end:]
        for place in {start, (start + end) // 2, end - 1}:
            other = bytes([data[place] ^ 0xFF])
            yield f"all bits of byte {place}", data[:place] + other + data[place + 1 :]


def whole_object(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    yield "empty", b""
    yield "gone", None
    yield "short of its last byte", data[:-1]
    yield "twice", data * 2
    for more in (b"\0", b" ", b"\n", b"}"):
        yield f"followed by {more!r}", data + more


def damages(bucket: Bucket, name: str, data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """All of them that change the object."""
    for each in (flips(data), regional(data, edges(bucket, name, data)), whole_object(data)):
        yield from ((said, damaged) for said, damaged in each if damaged != data)


def put(bucket: Bucket, name: str, data: bytes | None) -> None:
    if data is None:
        bucket.delete([name])
    else:
        bucket.replace(name, data)


def loaded_and_said(bucket: Bucket) -> tuple[Snapshot, Values, list[str]]:
    """Load as a stranger does who keeps what he is told on the way."""
    log, said = CommitLog(bucket), []
    for entry in log.checkpoints():
        try:
            plain = loaded_manifest(bucket, read_manifest(bucket, entry))
        except Damaged as exc:
            said.append(str(exc))
            continue
        return entry.snapshot, plain, [*log.passed_over(entry.number), *said]
    raise AssertionError(f"nothing is loaded: {said}")


@pytest.mark.parametrize("kind", ["entry", "manifest", "part"])
def test_every_region_that_is_needed_leaves_the_one_before(bucket: Bucket, kind: str) -> None:
    """Bit for bit, never a mixture, and one sentence says what was damaged."""
    names = {"entry": [NEWEST_ENTRY], "manifest": [NEW.manifest], "part": parts(bucket)}[kind]
    seen = 0
    for name in names:
        data = bucket.read(name, LIMIT_BYTES)
        for how, damaged in list(damages(bucket, name, data)):
            is_longer = damaged is not None and damaged[: len(data)] == data
            if kind == "part" and is_longer:
                continue  # What was appended to a part nobody reads; see the test below.
            if kind == "entry" and damaged is None:
                continue  # A log that ends before it is none that is damaged; see below too.
            put(bucket, name, damaged)
            snapshot, plain, said = loaded_and_said(bucket)
            assert (snapshot, plain) == (OLD, values(OLD)), f"{name}: {how}"
            assert len(said) == 1, f"{name}: {how}: {said}"
            named = {"entry": "entry 3", "manifest": str(NEW), "part": name.split("/")[-1]}[kind]
            assert named in said[0] and said[0].endswith("."), f"{name}: {how}: {said}"
            seen += 1
        put(bucket, name, data)
    assert seen > 400
    assert loaded_and_said(bucket) == (NEW, values(NEW), [])


def test_damage_that_does_not_matter_costs_nothing(bucket: Bucket) -> None:
    """The hint, fragments, the older checkpoint, bytes behind a part: the newest is loaded, and
    nothing is said that would worry anybody."""
    unread = [OLD.manifest, *(fragment_name(NEW, share, 0) for share in range(SHARES))]
    for name in (HINT, entry_name(1), entry_name(2), *unread):
        data = bucket.read(name, LIMIT_BYTES)
        every = whole_object(data) if name in unread else damages(bucket, name, data)
        for how, damaged in list(every):
            if name == entry_name(1) and damaged is None:
                continue  # Then numbers below cannot be found; a log loses none but its last.
            put(bucket, name, damaged)
            assert loaded_and_said(bucket) == (NEW, values(NEW), []), f"{name}: {how}"
        put(bucket, name, data)
    for name in parts(bucket):
        data = bucket.read(name, LIMIT_BYTES)
        for more in (b"\0", b" ", data, bytes(5000)):
            put(bucket, name, data + more)
            assert loaded_and_said(bucket) == (NEW, values(NEW), [])
        put(bucket, name, data)


def test_log_without_its_last_entry_is_the_log_before_it(bucket: Bucket) -> None:
    """That an object is gone without a trace cannot be told from one that was never written."""
    bucket.delete([NEWEST_ENTRY])
    assert loaded_and_said(bucket) == (OLD, values(OLD), [])


def test_parts_that_change_places_are_noticed(bucket: Bucket) -> None:
    """Each is whole, and each is another's: never a mixture."""
    names = parts(bucket)
    held = {name: bucket.read(name, LIMIT_BYTES) for name in names}
    strange = [bucket.read(name.replace(NEW.folder, OLD.folder), LIMIT_BYTES) for name in names]
    for name in names:
        for data in (*held.values(), *strange):
            if data != held[name]:
                put(bucket, name, data)
                snapshot, plain, said = loaded_and_said(bucket)
                assert (snapshot, plain) == (OLD, values(OLD)) and name.split("/")[-1] in said[0]
        put(bucket, name, held[name])
    assert loaded_and_said(bucket) == (NEW, values(NEW), [])


def test_no_manifest_is_made_of_a_damaged_fragment(bucket: Bucket) -> None:
    """Damage that comes before the commit: it is not committed, for it is not whole."""
    newer = Snapshot(run=1, generation=1, step=30)
    uploaded(bucket, newer)
    right = committer(bucket).gather(newer, SHARES, ())
    assert right is not None
    seen = 0
    for share in range(SHARES):
        name = fragment_name(newer, share, 0)
        data = bucket.read(name, LIMIT_BYTES)
        for how, damaged in list(damages(bucket, name, data)):
            put(bucket, name, damaged)
            assert committer(bucket).gather(newer, SHARES, ()) is None, f"{name}: {how}"
            with suppress(ObjectMissing), pytest.raises(Damaged):
                Fragment.from_json(bucket.read(name, LIMIT_BYTES))
            seen += 1
        put(bucket, name, data)
    assert seen > 500
    assert committer(bucket).gather(newer, SHARES, ()) == right
