"""A whole checkpoint comes back into one process, in batches, or is called damaged."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from elasticd.checkpoint.commit.committer import CommitOutcome, read_manifest
from elasticd.checkpoint.format.entry import LogEntry
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.dcp import whole_checkpoint
from elasticd.dcp.whole_checkpoint import load
from elasticd.errors import NotSupported
from tests.unit.checkpoint.stock_case import Maker, same, state_at


@pytest.mark.parametrize("batch_bytes", [1, 1000, 3 << 20, 512 << 20])
def test_the_size_of_a_batch_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    """A block that two batches need is read twice."""
    monkeypatch.setattr(whole_checkpoint, "BATCH_BYTES", batch_bytes)
    maker = Maker.of(tmp_path)
    state = {**state_at(1), "large": torch.randn(3000, 1000), "wide": torch.randn(1, 900_000)}
    header, found = load(maker.bucket, maker.save(1, state, count=3))
    assert same(found, state) and header.snapshot.step == 1


def test_tensors_have_memory_of_their_own(tmp_path: Path) -> None:
    """Else saving a small one would save the whole batch."""
    maker = Maker.of(tmp_path, steps=1)
    _, found = load(maker.bucket, maker.log.entry(2))
    assert found["model"]["bias"].untyped_storage().nbytes() == 28


@pytest.mark.parametrize(
    "skeleton",
    ['["s", {"x": 99}]', '["s", {"device": "nowhere"}]', '["s", {"d": [], "m": 1}]', '["s", {}]',
     '["s", {"q": 1}]', '["s"]', "{", '["s", {"s": ["x"]}]', '["s", {"f": "zz"}]'],
)  # fmt: skip
def test_a_crafted_skeleton_is_damage(tmp_path: Path, skeleton: str) -> None:
    """Not a traceback."""
    maker = Maker.of(tmp_path)
    with pytest.raises(Damaged, match="skeleton"):
        load(maker.bucket, committed(maker, skeleton=skeleton))


def test_a_type_that_this_torch_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written by a newer one."""
    maker = Maker.of(tmp_path, steps=1)
    monkeypatch.delattr(torch, "bfloat16")
    with pytest.raises(NotSupported, match="bfloat16"):
        load(maker.bucket, maker.log.entry(2))


def committed(maker: Maker, *, skeleton: str) -> LogEntry:
    """A checkpoint that is whole but for its skeleton."""
    snapshot, fragments = maker.put(1)
    manifest = maker.committer.gather(snapshot, 2, fragments)
    assert manifest is not None
    changed = replace(manifest, header=replace(manifest.header, skeleton=skeleton))
    assert maker.committer.commit(changed) is CommitOutcome.COMMITTED
    entry = maker.log.entry(maker.log.newest_number())
    assert read_manifest(maker.bucket, entry).header.skeleton == skeleton
    return entry
