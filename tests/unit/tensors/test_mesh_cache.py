"""Tensors of a new generation are on its own mesh, not on one of before that looks the same."""

from collections.abc import Iterator

import pytest
import torch

from elasticd.tensors.local_shard import local_part
from elasticd.tensors.mesh_cache import forget_meshes
from tests.fixtures.ranks import Cast
from tests.integration.checkpoint_dcp.troupe import Troupe

SIZE = 2


def spread(rank: int, *, is_new: bool) -> list[tuple[int, ...]]:
    """Where the rows of a tensor, and of others made of it, begin on this rank."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    if is_new:
        forget_meshes()
    tensor = distribute_tensor(torch.ones(4, 2), init_device_mesh("cpu", (SIZE,)), [Shard(0)])
    return [local_part(each).origin for each in (tensor, tensor.detach(), torch.zeros_like(tensor))]


def first(rank: int) -> list[tuple[int, ...]]:
    return spread(rank, is_new=False)


def second(rank: int) -> list[tuple[int, ...]]:
    return spread(rank, is_new=True)


@pytest.fixture
def troupe() -> Iterator[Troupe]:
    with Cast() as cast:
        yield Troupe(cast, SIZE)


def test_process_that_has_another_rank_now_has_another_part(troupe: Troupe) -> None:
    """torch takes the new mesh for the old one, and would say that the part is the other's."""
    wanted = [[(0, 0)] * 3, [(2, 0)] * 3]
    assert troupe.play(first, size=SIZE) == wanted
    troupe._actors.reverse()
    assert troupe.play(second, size=SIZE) == wanted


def test_without_dtensors_nothing_is_to_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor imported for it."""
    monkeypatch.delitem(__import__("sys").modules, "torch.distributed.tensor", raising=False)
    forget_meshes()
