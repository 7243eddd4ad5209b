"""Damage to any byte of any object: a reader gets what was written, something older, or an error.

A small checkpoint in a folder, an older one beside it. Nothing here may load as a mixture.
"""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.committer import CommitOutcome, read_manifest
from elasticd.checkpoint.commit.fetch import verify
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import BLOCK_BYTES, Tensor
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.folder import FolderBucket
from tests.integration.checkpoint.saving_case import (
    NEW,
    OLD,
    committed,
    committer,
    load,
    loaded_manifest,
    save,
    save_two,
    values,
)

LARGE = (Tensor("large", "float32", (1200, 2500)),)
"""12 MB: two parts of two blocks each."""
REGIONS = 12
"""Places in each object; the first and the last byte are among them."""


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two checkpoints, of several parts each."""
    save_two(FolderBucket(str(tmp_path / "whole")), monkeypatch)
    return tmp_path / "whole"


def objects(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def damages(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """Every way in which an object is not what it was, each at places all over it."""
    for place in sorted({index * (len(data) - 1) // REGIONS for index in range(REGIONS + 1)}):
        for bit in (0, 2, 7):
            flipped = bytes([data[place] ^ 1 << bit])
            yield f"bit {bit} of byte {place}", data[:place] + flipped + data[place + 1 :]
        yield f"cut to {place}", data[:place]
        yield f"zeros from {place}", data[:place] + bytes(len(data) - place)
        yield f"without byte {place}", data[:place] + data[place + 1 :]
    yield "longer", data + b"\0"
    yield "longer by a space", data + b" "
    yield "twice", data * 2
    yield "gone", None


def one_that_was_written(bucket: Bucket) -> Snapshot | None:
    """Load the newest; fail if it is not exactly what was saved."""
    found = load(bucket)
    if found is None:
        return None
    assert found[1] == values(found[0])
    return found[0]


def test_damaged_object_is_never_loaded_as_something_else(whole: Path, tmp_path: Path) -> None:
    """Any one object, in any way: the newest checkpoint or the older one, bit for bit."""
    paths = objects(whole)
    assert len([path for path in paths if path.suffix == ".bin"]) >= 6
    for path in paths:
        copy = tmp_path / "copy"
        shutil.copytree(whole, copy)
        data = (whole / path).read_bytes()
        for said, damaged in damages(data):
            (copy / path).unlink(missing_ok=True)
            if damaged is not None:
                (copy / path).write_bytes(damaged)
            found = one_that_was_written(FolderBucket(str(copy)))
            assert found in (OLD, NEW), f"{path}: {said}"
        shutil.rmtree(copy)


def test_damage_that_matters_is_noticed(whole: Path) -> None:
    """What the newest checkpoint needs, when it is damaged, leaves the older one."""
    needed = [f"{NEW.manifest}", "commits/000000000003.json"]
    needed += [str(path) for path in objects(whole) if path.match(f"{NEW.folder}/*.bin")]
    for name in needed:
        data = (whole / name).read_bytes()
        for said, damaged in damages(data):
            if name.endswith(".bin") and damaged is not None and damaged[: len(data)] == data:
                continue  # What was appended nobody reads.
            if damaged == data:
                continue
            (whole / name).unlink(missing_ok=True)
            if damaged is not None:
                (whole / name).write_bytes(damaged)
            assert one_that_was_written(FolderBucket(str(whole))) == OLD, f"{name}: {said}"
        (whole / name).write_bytes(data)
    assert one_that_was_written(FolderBucket(str(whole))) == NEW


def test_objects_of_another_checkpoint_are_noticed(whole: Path) -> None:
    """A part, a manifest and an entry that are whole, in the place of others."""
    for path in objects(whole):
        if path.match(f"{OLD.folder}/*") and path.name != "00001-0.json":
            place = whole / NEW.folder / path.name
            data = place.read_bytes()
            place.write_bytes((whole / path).read_bytes())
            is_needed = not path.name.endswith("-0.json")
            assert one_that_was_written(FolderBucket(str(whole))) == (OLD if is_needed else NEW)
            place.write_bytes(data)
    older = (whole / "commits/000000000002.json").read_bytes()
    (whole / "commits/000000000003.json").write_bytes(older)
    assert one_that_was_written(FolderBucket(str(whole))) == OLD


def test_damage_to_everything_is_no_checkpoint(whole: Path) -> None:
    """Then the job begins anew, or the operator looks; nothing is made up."""
    for path in objects(whole):
        if path.suffix == ".bin":
            data = (whole / path).read_bytes()
            (whole / path).write_bytes(bytes([data[0] ^ 1]) + data[1:])
    assert one_that_was_written(FolderBucket(str(whole))) is None
    for entry in committed(FolderBucket(str(whole))):
        with pytest.raises(Damaged, match="not as it was written"):
            loaded_manifest(
                FolderBucket(str(whole)), read_manifest(FolderBucket(str(whole)), entry)
            )


def test_damaged_entry_does_not_stop_the_next_save(whole: Path) -> None:
    """The log goes on behind it, and what came before stays loadable."""
    (whole / "commits/000000000003.json").write_bytes(b"{}")
    bucket = FolderBucket(str(whole))
    newer = Snapshot(run=1, generation=1, step=30)
    assert save(bucket, newer) is CommitOutcome.COMMITTED
    assert CommitLog(bucket).newest_number() == 4
    assert [entry.snapshot for entry in CommitLog(bucket).checkpoints()] == [newer, OLD]
    assert one_that_was_written(bucket) == newer


def test_hint_that_lies_is_found_out(whole: Path) -> None:
    """It may name any number, or be anything."""
    for said in (b"1", b"2", b"3", b"4", b"999999999999", b"0", b"-1", b"true", b"1.5", b"[3]",
                 b"", b"9" * 99, b"\xff\xff", b'{"a": 1}', b"NaN", b"[" * 99):  # fmt: skip
        (whole / "commits/hint.json").write_bytes(said)
        assert CommitLog(FolderBucket(str(whole))).newest_number() == 3


def each_block(data: bytes) -> Iterator[bytes]:
    for place in range(100, len(data), BLOCK_BYTES):
        yield data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]
    yield data[: BLOCK_BYTES + 5]
    yield data[:BLOCK_BYTES] + data[: len(data) - BLOCK_BYTES]


@pytest.mark.parametrize("how", [each_block], ids=["flips, cuts, swaps"])
def test_every_block_of_a_large_part_is_verified(
    tmp_path: Path, how: Callable[[bytes], Iterator[bytes]]
) -> None:
    """By who loads it and by who only verifies, which says where the damage is."""
    bucket = FolderBucket(str(tmp_path))
    committer(bucket).open(1, 0)
    assert save(bucket, NEW, tensors=LARGE) is CommitOutcome.COMMITTED
    (entry,) = CommitLog(bucket).checkpoints()
    manifest = read_manifest(bucket, entry)
    assert loaded_manifest(bucket, manifest) == values(NEW, LARGE)
    seen = 0
    for part in manifest.parts:
        path = tmp_path / NEW.folder / part.name
        data = path.read_bytes()
        assert len(part.sums) == 2
        for damaged in how(data):
            path.write_bytes(damaged)
            with pytest.raises(Damaged, match=part.name):
                loaded_manifest(bucket, manifest)
            with ThreadPoolExecutor(2) as pool:
                (said,) = verify(bucket, manifest, pool)
            assert part.name in said
            seen += 1
        path.write_bytes(data)
    with ThreadPoolExecutor(2) as pool:
        assert verify(bucket, manifest, pool) == []
    assert seen == 8
