"""Any box of any piece is what slicing would give, however it is batched."""

from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elasticd.checkpoint.format.checksum import block_sums
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import BLOCK_BYTES, Header, Manifest, Part, Piece, Tensor
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.dcp import box_read
from elasticd.dcp.box_read import PieceBox, boxes

SNAPSHOT = Snapshot(run=1, generation=1, step=1)
NAME = "00000-0-0123abcd-00000.bin"


def stored(folder: Path, values: list[torch.Tensor], gap: int) -> Manifest:
    """Write tensors one behind the other, each one piece, `gap` bytes apart."""
    raw = bytearray()
    pieces = []
    for index, value in enumerate(values):
        raw += b"\xff" * gap
        pieces.append(Piece(index, (0,) * value.dim(), tuple(value.shape), 0, len(raw)))
        raw += value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    bucket = FolderBucket(str(folder))
    bucket.create(f"{SNAPSHOT.folder}/{NAME}", bytes(raw))
    tensors = tuple(
        Tensor(f"state.{index}", str(value.dtype).removeprefix("torch."), tuple(value.shape))
        for index, value in enumerate(values)
    )
    header = Header(
        snapshot=SNAPSHOT,
        job="j",
        uid="u",
        epoch=0,
        world_size=1,
        shares=1,
        taken_unix_s=0.0,
        version="0",
        skeleton="",
        tensors=tensors,
    )
    part = Part(NAME, len(raw), block_sums(memoryview(raw)))
    return Manifest(header=header, parts=(part,), pieces=tuple(pieces))


@st.composite
def cases(draw: Any) -> tuple[list[tuple[int, ...]], list[PieceBox]]:
    """Shapes of pieces, and boxes in them."""
    shapes = draw(st.lists(st.lists(st.integers(1, 5), max_size=3).map(tuple), min_size=1))
    wanted = []
    for _ in range(draw(st.integers(1, 6))):
        piece = draw(st.integers(0, len(shapes) - 1))
        offsets = tuple(draw(st.integers(0, size - 1)) for size in shapes[piece])
        shape = tuple(
            draw(st.integers(0, size - start))
            for start, size in zip(offsets, shapes[piece], strict=True)
        )
        wanted.append(PieceBox(piece, offsets, shape))
    return shapes, wanted


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(case=cases(), gap=st.integers(0, 9))
def test_a_box_is_what_slicing_gives(
    tmp_path_factory: pytest.TempPathFactory, case: Any, gap: int
) -> None:
    """Also where pieces are not aligned, which the format does not ask for."""
    shapes, wanted = case
    values = [
        torch.arange(prod(shape), dtype=(torch.float32, torch.int64, torch.bfloat16)[index % 3])
        .reshape(shape)
        .add(100 * index)
        for index, shape in enumerate(shapes)
    ]
    folder = tmp_path_factory.mktemp("boxes")
    manifest = stored(folder, values, gap)
    seen = []
    with ThreadPoolExecutor(2) as pool:
        for index, found in boxes(FolderBucket(str(folder)), manifest, wanted, pool):
            box = wanted[index]
            cut = tuple(
                slice(start, start + size)
                for start, size in zip(box.offsets, box.shape, strict=True)
            )
            assert found.dtype == values[box.piece].dtype
            assert torch.equal(found, values[box.piece][cut])
            seen.append(index)
    assert sorted(seen) == list(range(len(wanted)))


def test_batches_bound_the_memory_and_read_each_block_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight blocks, asked for in small pieces and in disorder, at most two in memory."""
    values = [torch.full((BLOCK_BYTES // 16,), index, dtype=torch.int32) for index in range(32)]
    manifest = stored(tmp_path, values, 0)
    sizes: list[int] = []
    inner = FolderBucket.read_into

    def counted(self: FolderBucket, name: str, start: int, place: memoryview) -> int:
        sizes.append(len(place))
        return inner(self, name, start, place)

    monkeypatch.setattr(FolderBucket, "read_into", counted)
    monkeypatch.setattr(box_read, "BATCH_BYTES", 2 * BLOCK_BYTES)
    wanted = [PieceBox(index * 7 % 32, (5,), (BLOCK_BYTES // 16 - 9,)) for index in range(32)]
    with ThreadPoolExecutor(2) as pool:
        for index, found in boxes(FolderBucket(str(tmp_path)), manifest, wanted, pool):
            assert set(found.tolist()) == {wanted[index].piece}
    assert sizes == [2 * BLOCK_BYTES] * 4
