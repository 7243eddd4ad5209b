"""What one world saves another world loads: other sizes, other meshes, other shards."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from elasticd.checkpoint import Reader, Writer
from tests.integration.checkpoint_dcp.troupe import (
    Troupe,
    digests,
    put_back,
    sharded,
    state_of,
    trained,
)

# --- scenes: what each rank does ----------------------------------------------------------------


def save_model(rank: int, url: str, shape: tuple[int, ...]) -> dict[str, str]:
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("a", "b")[: len(shape)])
    state = state_of(*trained(1, mesh))
    save(state, storage_writer=Writer(url, step=2))
    return digests(state)


def load_model(rank: int, url: str, is_sharded: bool) -> dict[str, str]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),)) if is_sharded else None
    model, optimizer = sharded(2, mesh)
    state = state_of(model, optimizer)
    load(state, storage_reader=Reader(url))
    put_back(model, optimizer, state)
    return digests(state_of(model, optimizer))


def replicated(seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(9, 4), torch.nn.BatchNorm1d(4))
    return {"model": model.state_dict(), "epoch": seed, "betas": (0.1 * seed, 0.9)}


def save_replicated(rank: int, url: str) -> dict[str, str]:
    state = replicated(1)
    save(state, storage_writer=Writer(url, step=5))
    return digests(state)


def load_replicated(rank: int, url: str) -> dict[str, str]:
    state = replicated(2)
    load(state, storage_reader=Reader(url))
    return digests(state)


LAYOUTS: dict[str, tuple[tuple[int, ...], list[Any]]] = {
    "rows of 4": ((4,), [Shard(0)]),
    "columns of 4": ((4,), [Shard(1)]),
    "boxes of 2 x 2": ((2, 2), [Shard(0), Shard(1)]),
    "columns of 3": ((3,), [Shard(1)]),
    "depth of 2": ((2,), [Shard(2)]),
    "pairs of columns": ((2, 2), [Replicate(), Shard(1)]),
}


def cube(layout: str, whole: torch.Tensor) -> DTensor:
    shape, placements = LAYOUTS[layout]
    return distribute_tensor(whole, init_device_mesh("cpu", shape), placements)


def save_cube(rank: int, url: str, layout: str) -> None:
    whole = torch.arange(5 * 7 * 3, dtype=torch.float64).reshape(5, 7, 3)
    save({"cube": cube(layout, whole)}, storage_writer=Writer(url, step=1))


def load_cube(rank: int, url: str, layout: str) -> bool:
    state = {"cube": cube(layout, torch.zeros(5, 7, 3, dtype=torch.float64))}
    load(state, storage_reader=Reader(url))
    whole = torch.arange(5 * 7 * 3, dtype=torch.float64).reshape(5, 7, 3)
    return torch.equal(state["cube"].full_tensor(), whole)


# --- tests --------------------------------------------------------------------------------------


def test_fsdp_state_of_four_ranks_is_loaded_by_fewer(troupe: Troupe, tmp_path: Path) -> None:
    """Model and AdamW state, unevenly sharded, at world sizes 2, 3 and 4, and without FSDP at 1."""
    saved = troupe.play(save_model, str(tmp_path), (4,), size=4)[0]
    for size in (2, 3, 4):
        assert troupe.play(load_model, str(tmp_path), True, size=size) == [saved] * size
    assert troupe.play(load_model, str(tmp_path), False, size=1) == [saved]


def test_hsdp_state_is_written_once_and_loaded_by_fsdp(troupe: Troupe, tmp_path: Path) -> None:
    """Two replicas of two shards: each element is in the checkpoint exactly once."""
    saved = troupe.play(save_model, str(tmp_path), (2, 2), size=4)[0]
    assert troupe.play(load_model, str(tmp_path), True, size=3) == [saved] * 3
    assert troupe.play(load_model, str(tmp_path), True, size=1) == [saved]


def test_replicated_state_is_shared_out_among_the_writers(troupe: Troupe, tmp_path: Path) -> None:
    """As with DDP: all ranks have all, each writes some of it, any number loads it."""
    saved = troupe.play(save_replicated, str(tmp_path), size=4)[0]
    writers = {part.name[:5] for part in tmp_path.glob("steps/*/*.bin")}
    assert len(writers) == 4
    assert troupe.play(load_replicated, str(tmp_path), size=2) == [saved] * 2
    assert troupe.play(load_replicated, str(tmp_path), size=1) == [saved]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("rows of 4", "columns of 3"),
        ("columns of 4", "boxes of 2 x 2"),
        ("boxes of 2 x 2", "depth of 2"),
        ("pairs of columns", "rows of 4"),
    ],
)
def test_boxes_of_one_layout_are_cut_into_those_of_another(
    troupe: Troupe, tmp_path: Path, before: str, after: str
) -> None:
    """DTensors sharded along any dimension, several at once, and replicated."""

    def size(layout: str) -> int:
        return int(torch.tensor(LAYOUTS[layout][0]).prod())

    troupe.play(save_cube, str(tmp_path), before, size=size(before))
    assert all(troupe.play(load_cube, str(tmp_path), after, size=size(after)))
