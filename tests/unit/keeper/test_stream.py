"""A checkpoint read through a small memory: all of it, in order, verified, a little at a time."""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.committer import read_manifest
from elasticd.checkpoint.commit.fetch import extents, fetch, size_of
from elasticd.checkpoint.commit.read_lease import leased
from elasticd.checkpoint.format.entry import LogEntry
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.manifest import BLOCK_BYTES, Manifest, Piece
from elasticd.checkpoint.retention.deletion import remove
from elasticd.keeper import stream as module
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.stream import PieceBatch, batches, stream
from tests.unit.checkpoint.stock_case import Maker


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as pool:
        yield pool


class Site:
    """A folder with one checkpoint of 1.8 MB in four shares."""

    def __init__(self, folder: Path) -> None:
        self.maker = Maker.of(folder)
        self.entry: LogEntry = self.maker.save(10, count=4)
        self.manifest: Manifest = read_manifest(self.maker.bucket, self.entry)
        self.every = self.manifest.pieces

    def batches(self, pool: ThreadPoolExecutor) -> Generator[PieceBatch]:
        return stream(self.maker.bucket, self.entry.number, self.manifest, self.every, pool)

    def data_of(self, batch: tuple[Piece, ...], memory: SharedMemory) -> list[bytes]:
        """The bytes of each piece, as a worker finds them."""
        _, starts, _ = extents(self.manifest, batch)
        sizes = [size_of(self.manifest, piece) for piece in batch]
        return [bytes(memory.view[s : s + n]) for s, n in zip(starts, sizes, strict=True)]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(module, "BATCH_BYTES", 300_000)
    return Site(tmp_path)


def test_batches_are_all_pieces_in_order_and_no_larger_than_they_must_be(site: Site) -> None:
    for limit in (1, 100_000, 300_000, 10**9):
        cut = batches(site.manifest, site.every, limit)
        assert tuple(piece for batch in cut for piece in batch) == site.every
        for batch in cut:
            sizes = [size_of(site.manifest, piece) for piece in batch]
            assert len(batch) == 1 or sum(sizes) <= limit
    assert batches(site.manifest, (), 10) == []


def test_what_comes_is_what_a_whole_fetch_brings(site: Site, pool: ThreadPoolExecutor) -> None:
    """Each batch is asked for only when the one before was taken, whose memory it may have."""
    every, _, size = extents(site.manifest, site.every)
    whole = SharedMemory.new(size)
    fetch(site.maker.bucket, site.manifest, every, whole.view, pool)
    expected = site.data_of(site.every, whole)
    found: list[bytes] = []
    slots: dict[int, int] = {}
    for batch in site.batches(pool):
        assert batch.is_first == (batch.slot not in slots)
        assert slots.setdefault(batch.slot, batch.memory.file) == batch.memory.file
        found += site.data_of(batch.pieces, batch.memory)
    assert found == expected
    assert sum(map(len, found)) == site.manifest.nbytes
    assert len(slots) == 2


def test_memory_is_that_of_two_batches(site: Site, pool: ThreadPoolExecutor) -> None:
    held = {batch.slot: batch.memory.size for batch in site.batches(pool)}
    largest = max(size_of(site.manifest, each) for each in site.manifest.pieces)
    assert sum(held.values()) <= 2 * (max(largest, module.BATCH_BYTES) + 3 * BLOCK_BYTES)


def test_damage_ends_the_stream_where_it_is_met(
    site: Site, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """Nothing that is not verified is handed out."""
    last = max(site.manifest.parts, key=lambda part: part.name)
    path = tmp_path / site.entry.snapshot.folder / last.name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found: list[Piece] = []

    def read() -> None:
        for batch in site.batches(pool):
            found.extend(batch.pieces)

    with pytest.raises(Damaged, match="checksum"):
        read()
    assert 0 < len(found) < len(site.every)
    assert leased(site.maker.bucket) == frozenset()


def test_stream_that_is_left_gives_back_its_lease(site: Site, pool: ThreadPoolExecutor) -> None:
    begun = site.batches(pool)
    next(begun)
    assert leased(site.maker.bucket) == {site.entry.number}
    begun.close()
    assert leased(site.maker.bucket) == frozenset()


def test_checkpoint_that_was_given_up_is_not_read(site: Site, pool: ThreadPoolExecutor) -> None:
    for step in (20, 30, 40):
        site.maker.save(step)
    remove(site.maker.bucket, site.maker.log, [site.entry.number])
    with pytest.raises(Damaged, match="given up"):
        next(site.batches(pool))


def test_no_pieces_are_no_batches(site: Site, pool: ThreadPoolExecutor) -> None:
    assert list(stream(site.maker.bucket, site.entry.number, site.manifest, (), pool)) == []
