"""Reads pieces of a checkpoint into memory, in parallel, and verifies every checksum.

The caller asks for pieces, or for rows of some; what is read are the blocks in which they lie,
straight to their place in memory where a whole block belongs there. A block whose checksum is wrong
is read once more before the checkpoint counts as damaged: most flipped bits flip on the way.
"""

from collections.abc import Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from math import prod

from elasticd.checkpoint.format.checksum import block_sum
from elasticd.checkpoint.format.json_read import Damaged, DamagedBlock
from elasticd.checkpoint.format.manifest import BLOCK_BYTES, DTYPE_BYTES, Manifest, Part, Piece
from elasticd.checkpoint.storage.bucket import Bucket, ObjectMissing, ReadableBucket

__all__ = [
    "Extent",
    "Fetching",
    "extents",
    "fetch",
    "read_back",
    "read_block",
    "size_of",
    "verify",
]

TRIES = 3
REQUEST_BYTES = 16 << 20
"""Neighbouring blocks are read in one request up to this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Neighbouring blocks of one part, and the place in memory to which they are read."""

    part: int
    first_block: int
    start: int
    """The first byte in the part."""
    size: int
    at: int
    """The first byte in memory."""


def size_of(manifest: Manifest, piece: Piece) -> int:
    return prod(piece.shape) * DTYPE_BYTES[manifest.header.tensors[piece.tensor].dtype]


def extents(manifest: Manifest, pieces: Sequence[Piece]) -> tuple[list[Extent], list[int], int]:
    """Plan where in memory the blocks go: of all pieces of the manifest, or of the rows asked for.

    Returns the extents, the first byte in memory of each piece, and the size of the memory.
    """
    wanted: dict[int, set[int]] = {}
    for piece in pieces:
        size = size_of(manifest, piece)
        first, last = piece.at // BLOCK_BYTES, (piece.at + size - 1) // BLOCK_BYTES
        if size:
            wanted.setdefault(piece.part, set()).update(range(first, last + 1))
    found: list[Extent] = []
    places: dict[tuple[int, int], int] = {}
    at = 0
    for part, blocks in sorted(wanted.items()):
        size_bytes = manifest.parts[part].size
        run: list[int] = []
        for block in sorted(blocks):
            is_next = run and block == run[-1] + 1 and len(run) * BLOCK_BYTES < REQUEST_BYTES
            if run and not is_next:
                at = _close(found, part, run, size_bytes, at)
                run = []
            places[part, block] = at + len(run) * BLOCK_BYTES
            run.append(block)
        at = _close(found, part, run, size_bytes, at)
    starts = []
    for piece in pieces:
        block = piece.at // BLOCK_BYTES
        is_empty = size_of(manifest, piece) == 0
        starts.append(0 if is_empty else places[piece.part, block] + piece.at % BLOCK_BYTES)
    return found, starts, at


def fetch(
    bucket: Bucket, manifest: Manifest, every: Sequence[Extent], memory: memoryview, pool: Executor
) -> None:
    """Read and verify extents.

    Raises:
        Damaged: something is gone, too short, or wrong.
    """
    Fetching(bucket, manifest, every, memory, pool).result()


class Fetching:
    """Extents that are being read and verified."""

    def __init__(
        self,
        bucket: Bucket,
        manifest: Manifest,
        every: Sequence[Extent],
        memory: memoryview,
        pool: Executor,
    ) -> None:
        folder = manifest.header.snapshot.folder
        self._tasks: list[Future[None]] = [
            pool.submit(_fetch_one, bucket, folder, manifest.parts[each.part], each, memory)
            for each in every
        ]

    def result(self) -> None:
        """Wait until all extents are read.

        Then the memory belongs to the caller again, also after an error.

        Raises:
            Damaged: something is gone, too short, or wrong.
        """
        try:
            for task in self._tasks:
                task.result()
        finally:
            self.end()

    def end(self) -> None:
        """Cancel reads that have not begun, and wait for the others: then nobody writes to the
        memory.
        """
        for task in self._tasks:
            task.cancel()
        wait(self._tasks)


def verify(bucket: ReadableBucket, manifest: Manifest, pool: Executor) -> list[str]:
    """Read all parts; return a sentence for each part that differs from what was written."""

    def look(part: Part) -> str:
        memory = memoryview(bytearray(min(part.size, REQUEST_BYTES)))
        for start in range(0, part.size, REQUEST_BYTES):
            size, block = min(REQUEST_BYTES, part.size - start), start // BLOCK_BYTES
            extent = Extent(part=0, first_block=block, start=start, size=size, at=0)
            try:
                _fetch_one(bucket, manifest.header.snapshot.folder, part, extent, memory)
            except Damaged as exc:
                return str(exc)
        return ""

    return [said for said in pool.map(look, manifest.parts) if said]


def read_back(bucket: ReadableBucket, manifest: Manifest) -> None:
    """Read the last block of the first and of the last part back, to see that the storage returns
    them.

    Raises: Damaged: a block is gone, too short, or wrong.
    """
    folder = manifest.header.snapshot.folder
    for part in {each.name: each for each in manifest.parts[:1] + manifest.parts[-1:]}.values():
        if part.size:
            read_block(bucket, folder, part, (part.size - 1) // BLOCK_BYTES)


def read_block(bucket: ReadableBucket, folder: str, part: Part, block: int) -> None:
    """Read one block of a part, to see whether it is as it was written.

    Raises: Damaged: the block is gone, too short, or wrong.
    """
    start = block * BLOCK_BYTES
    size = min(BLOCK_BYTES, part.size - start)
    extent = Extent(part=0, first_block=block, start=start, size=size, at=0)
    _fetch_one(bucket, folder, part, extent, memoryview(bytearray(size)))


def _close(found: list[Extent], part: int, run: list[int], part_bytes: int, at: int) -> int:
    start = run[0] * BLOCK_BYTES
    size = min((run[-1] + 1) * BLOCK_BYTES, part_bytes) - start
    found.append(Extent(part=part, first_block=run[0], start=start, size=size, at=at))
    # Whole blocks, so that what follows is aligned as it is in its part.
    return at + len(run) * BLOCK_BYTES


def _fetch_one(
    bucket: ReadableBucket, folder: str, part: Part, extent: Extent, memory: memoryview
) -> None:
    place = memory[extent.at : extent.at + extent.size]
    name = f"{folder}/{part.name}"
    why, block = "", extent.first_block
    for _ in range(TRIES):
        try:
            count = bucket.read_into(name, extent.start, place)
        except ObjectMissing as exc:
            raise Damaged(f"{name} is gone.", block=DamagedBlock(part.name, block)) from exc
        if count < extent.size:
            block = extent.first_block + count // BLOCK_BYTES
            why = f"{name} ends after {extent.start + count} of {part.size} bytes."
            continue
        wrong = _wrong_block(part, extent, place)
        if wrong is None:
            return
        block = wrong
        why = f"{name} is not as it was written: the checksum of its block {wrong} differs."
    raise Damaged(why, block=DamagedBlock(part.name, block))


def _wrong_block(part: Part, extent: Extent, place: memoryview) -> int | None:
    for offset in range(0, extent.size, BLOCK_BYTES):
        block = extent.first_block + offset // BLOCK_BYTES
        if block_sum(place[offset : offset + BLOCK_BYTES]) != part.sums[block]:
            return block
    return None
