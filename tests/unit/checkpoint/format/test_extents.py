"""Which blocks are read for which pieces, and that they are read into the right places."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.checkpoint.commit.fetch import REQUEST_BYTES, extents, fetch, size_of, verify
from elasticd.checkpoint.format.checksum import block_sums
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.manifest import BLOCK_BYTES, Manifest, Part, Piece, Tensor
from elasticd.checkpoint.format.piece_rows import PieceRows, selected
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket
from tests.unit.checkpoint.records import header

BIG = 2 * BLOCK_BYTES + 77


def manifest_of(parts: list[list[int]], gap: int = 0) -> Manifest:
    """One with these sizes of pieces in each part, `gap` bytes between them."""
    tensors: list[Tensor] = []
    pieces: list[Piece] = []
    made: list[Part] = []
    for number, sizes in enumerate(parts):
        at = 0
        for size in sizes:
            at += gap
            pieces.append(Piece(len(tensors), (0,), (size,), number, at))
            tensors.append(Tensor(f"t{len(tensors)}", "uint8", (size,)))
            at += size
        blocks = -(-at // BLOCK_BYTES)
        made.append(Part(f"00000-0-01234567-{number:05d}.bin", at, ("0" * 16,) * blocks))
    return Manifest(
        header=replace(header(), tensors=tuple(tensors)), parts=tuple(made), pieces=tuple(pieces)
    )


SIZES = st.one_of(st.integers(0, 300), st.integers(0, 6 * BLOCK_BYTES), st.just(BLOCK_BYTES))


@given(
    st.lists(st.lists(SIZES, min_size=1, max_size=5), min_size=1, max_size=3),
    st.integers(0, 100),
    st.data(),
)
def test_every_byte_of_every_piece_is_read_once_to_its_place(
    parts: list[list[int]], gap: int, data: st.DataObject
) -> None:
    """Whichever rows of whichever pieces are wanted, in whatever order; no two extents overlap in
    memory."""
    manifest = manifest_of(parts, gap)
    pieces = []
    for index in data.draw(st.permutations(range(len(manifest.pieces)))):
        rows = manifest.pieces[index].shape[0]
        first = data.draw(st.integers(0, rows))
        count = data.draw(st.one_of(st.just(rows - first), st.integers(0, rows - first)))
        pieces.append(PieceRows(index, first, count))
    pieces = pieces[: data.draw(st.integers(0, len(pieces)))]
    every, starts, size = extents(manifest, selected(manifest, pieces))
    end = 0
    blocks: set[tuple[int, int]] = set()
    for extent in every:
        assert extent.at >= end and extent.at % BLOCK_BYTES == 0
        end = extent.at + extent.size
        assert extent.start == extent.first_block * BLOCK_BYTES
        assert 0 < extent.size <= REQUEST_BYTES
        assert extent.start + extent.size <= manifest.parts[extent.part].size
        count = -(-extent.size // BLOCK_BYTES)
        mine = {(extent.part, extent.first_block + index) for index in range(count)}
        assert not mine & blocks, "a block is read twice"
        blocks |= mine
    assert end <= size
    wanted = set()
    for piece, start in zip(selected(manifest, pieces), starts, strict=True):
        length = size_of(manifest, piece)
        for at in {0, length // 2, length - 1} if length else ():
            (holder,) = (e for e in every if e.at <= start + at < e.at + e.size)
            assert holder.part == piece.part
            assert holder.start + start + at - holder.at == piece.at + at
        if length:
            first, last = piece.at // BLOCK_BYTES, (piece.at + length - 1) // BLOCK_BYTES
            wanted |= {(piece.part, block) for block in range(first, last + 1)}
        assert start + length <= size
    assert blocks == wanted, "what nobody wants is not read"


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def stored(manifest: Manifest) -> tuple[FsspecBucket, Manifest, list[bytes]]:
    """Put random parts there, and their checksums into the manifest."""
    bucket = FsspecBucket(f"memory://extents-{random.getrandbits(60)}", {})
    parts, bodies = [], []
    for part in manifest.parts:
        body = random.Random(part.name).randbytes(part.size)
        parts.append(replace(part, sums=block_sums(memoryview(body))))
        bodies.append(body)
        bucket.create(f"{manifest.header.snapshot.folder}/{part.name}", body)
    return bucket, replace(manifest, parts=tuple(parts)), bodies


@settings(max_examples=8, deadline=None)
@given(st.sets(st.integers(0, 5)))
def test_pieces_that_are_wanted_arrive_as_they_were(wanted: set[int]) -> None:
    """And no others are needed for it."""
    bucket, manifest, bodies = stored(manifest_of([[5, BIG, 0, 9], [BLOCK_BYTES, 3]], gap=7))
    pieces = [manifest.pieces[index] for index in sorted(wanted)]
    every, starts, size = extents(manifest, pieces)
    memory = bytearray(size)
    with ThreadPoolExecutor(2) as pool:
        fetch(bucket, manifest, every, memoryview(memory), pool)
    for piece, start in zip(pieces, starts, strict=True):
        length = size_of(manifest, piece)
        assert memory[start : start + length] == bodies[piece.part][piece.at : piece.at + length]


def test_memory_is_the_callers_again_when_a_fetch_fails(pool: Executor) -> None:
    """A thread that is still reading would write into what the next attempt put there."""
    inner, manifest, _ = stored(manifest_of([[9], [9], [9]]))
    begun, failed = threading.Barrier(3), threading.Event()
    late: list[str] = []

    class Slow(FsspecBucket):
        def read_into(self, name: str, start: int, place: memoryview) -> int:
            begun.wait()
            if name.endswith("-00000.bin"):
                failed.set()
                raise Damaged("It is broken.")
            failed.wait()
            threading.Event().wait(0.05)  # Long enough for who does not wait to be gone.
            count = super().read_into(name, start, place)
            late.append(name)
            return count

    bucket = Slow(inner.url, {})
    every, _, size = extents(manifest, manifest.pieces)
    with pytest.raises(Damaged, match="broken"):
        fetch(bucket, manifest, every, memoryview(bytearray(size)), pool)
    assert len(late) == 2


def test_verification_needs_no_memory_for_a_whole_part(pool: Executor) -> None:
    """A part may be 5 GiB, or say so; what is held is one request."""
    bucket, manifest, _ = stored(manifest_of([[REQUEST_BYTES + BIG], [4], [0]]))
    asked: list[int] = []

    class Watched(FsspecBucket):
        def read_into(self, name: str, start: int, place: memoryview) -> int:
            asked.append(len(place))
            return super().read_into(name, start, place)

    assert verify(Watched(bucket.url, {}), manifest, pool) == []
    assert max(asked) == REQUEST_BYTES and sum(asked) == REQUEST_BYTES + BIG + 4
