"""Saved by others than a plain `dcp.save`: the background, and elasticd's own holders."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from elasticd.checkpoint import Reader, Writer
from elasticd.checkpoint.commit.committer import CommitOutcome, Committer
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.commit.upload import UploadShare, upload
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Header, Tensor
from elasticd.checkpoint.format.share_layout import laid_out, shares
from elasticd.checkpoint.storage.location import open_bucket
from elasticd.tensors import tree
from tests.fixtures.patience import patience_s
from tests.integration.checkpoint_dcp.troupe import Troupe, digests, sharded, state_of, trained

HOLDERS = 3

# --- scenes: what each rank does ----------------------------------------------------------------


class Held(Writer):
    """Writes no byte before it is let go."""

    let_go = threading.Event()

    def write_data(self, *args: Any) -> Any:
        assert self.let_go.wait(patience_s(30.0))
        return super().write_data(*args)


def save_in_background(rank: int, url: str) -> dict[str, str]:
    """Return what the state was; all parameters are zero before the first byte is written."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model, optimizer = trained(1, mesh)
    state = state_of(model, optimizer)
    before = digests(state)
    saving = async_save(state, storage_writer=Held(url, step=3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    # No collective of our own before the end: the background's are on the same group.
    Held.let_go.set()
    saving.result()  # type: ignore[union-attr]
    assert digests(state) != before
    return before


def load_model(rank: int, url: str) -> dict[str, str]:
    state = state_of(*sharded(2, init_device_mesh("cpu", (dist.get_world_size(),))))
    load(state, storage_reader=Reader(url))
    return digests(state)


def load_holders(rank: int, url: str) -> dict[str, str]:
    """Load a large tensor in columns, all else as it is."""
    state = large_state(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state["model"]["large"] = distribute_tensor(state["model"]["large"], mesh, [Shard(1)])
    load(state, storage_reader=Reader(url))
    return digests(state)


# --- tests --------------------------------------------------------------------------------------


def large_state(seed: int) -> dict[str, Any]:
    """As `elasticd.State` would hold it: a model, an optimizer with numbers as keys, a step."""
    torch.manual_seed(seed)
    return {
        "model": {"large": torch.randn(3000, 301), "small": torch.randn(3).bfloat16()},
        "optimizer": {
            "state": {0: {"exp_avg": torch.randn(5), "step": torch.tensor(float(seed))}},
            "param_groups": [{"lr": 0.1 * seed, "params": [0, 1], "betas": (0.9, 0.99)}],
        },
        "step": seed,
    }


def save_by_holders(url: str, state: dict[str, Any]) -> None:
    """Save as the in-process daemon does: three holders, each with its share of the bytes."""
    taken = tree.flatten("state", state)
    tensors = [
        Tensor(name, str(each.dtype).removeprefix("torch."), tuple(each.shape))
        for name, each in zip(tree.paths(taken), taken.tensors, strict=True)
    ]
    bucket = open_bucket(f"file://{url}", {}, {})
    committer = Committer(bucket=bucket, log=CommitLog(bucket), uid="u", job="j")
    snapshot = Snapshot(run=committer.open(1, 0), generation=1, step=7)
    header = Header(
        snapshot=snapshot,
        job="j",
        uid="u",
        epoch=0,
        world_size=HOLDERS,
        shares=HOLDERS,
        taken_unix_s=0.0,
        version="0",
        skeleton=taken.skeleton,
        tensors=tuple(tensors),
    )
    fragments = []
    with ThreadPoolExecutor(4) as pool:
        for share, slabs in enumerate(shares(tensors, [True] * len(tensors), HOLDERS)):
            layout = laid_out(tensors, slabs)
            memory = torch.zeros(layout.size, dtype=torch.uint8)
            for piece, start in zip(layout.pieces, layout.starts(), strict=True):
                box = taken.tensors[piece.tensor]
                for dimension, (offset, size) in enumerate(
                    zip(piece.offsets, piece.shape, strict=True)
                ):
                    box = box.narrow(dimension, offset, size)
                room = memory[start : start + box.numel() * box.element_size()]
                room.view(box.dtype).view(box.shape).copy_(box)
            given = UploadShare(
                snapshot=snapshot,
                share=share,
                shares=HOLDERS,
                holder=0,
                layout=layout,
                header=header if share == 0 else None,
            )
            fragments.append(
                upload(bucket, given, memory.numpy().data, uid="u", writer="0123abcd", pool=pool)
            )
    manifest = committer.gather(snapshot, HOLDERS, fragments)
    assert manifest is not None
    assert committer.commit(manifest) is CommitOutcome.COMMITTED


def test_async_save_saves_what_the_state_was_when_it_was_called(
    troupe: Troupe, tmp_path: Path
) -> None:
    """The training goes on meanwhile; thread type, two ranks, FSDP."""
    before = troupe.play(save_in_background, str(tmp_path), size=2)[0]
    assert troupe.play(load_model, str(tmp_path), size=3) == [before] * 3


@pytest.mark.parametrize("size", [1, 2])
def test_shares_of_three_holders_are_read_by_stock_dcp(
    troupe: Troupe, tmp_path: Path, size: int
) -> None:
    """Cut by `plan.shares` along rows, asked for in columns; keys of an optimizer are numbers."""
    saved = large_state(3)
    save_by_holders(str(tmp_path), saved)
    expected = digests(saved)
    for heard in troupe.play(load_holders, str(tmp_path), size=size):
        assert heard == expected
