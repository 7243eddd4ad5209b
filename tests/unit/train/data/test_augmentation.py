"""Seeded: augmentations that depend on the sample and the epoch alone."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.train.data.loader_case import Numbers, loader_of, world_of


class _Noisy:
    """Each sample draws from all global generators."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        return index, random.random(), float(np.random.rand()), float(torch.rand(()))


def test_seeded_augmentations_do_not_depend_on_the_world() -> None:
    """Nor on data workers; another epoch and another seed draw others."""

    def draws(size: int, workers: int = 0, seed: int = 0) -> list[Any]:
        loaders = world_of(_Noisy(), 8, size, augment_seed=True, num_workers=workers, seed=seed)
        epochs = []
        for _ in range(2):
            epochs.append(sorted({s for loader in loaders for batch in loader for s in batch}))
        return epochs

    one = draws(1)
    assert len(one[0]) == 23
    assert draws(3) == one
    assert draws(2, workers=2) == one
    assert not {s[1:] for s in one[0]} & {s[1:] for s in one[1] + draws(1, seed=1)[0]}


@pytest.mark.parametrize("augment_seed", [True, False])
def test_the_generators_of_the_training_are_left_alone(augment_seed: bool) -> None:
    """Neither to begin a loop nor, with seeded augmentations, to fetch draws from them."""
    dataset: Any = _Noisy() if augment_seed else Numbers(9)
    loader = loader_of(dataset, 4, augment_seed=augment_seed)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(())
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    list(loader)
    assert (random.random(), np.random.rand(), torch.rand(())) == expected


def _set_up(worker_id: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert info is not None
    dataset: Any = info.dataset
    dataset.offset = 100 * (worker_id + 1)


class _Offset:
    offset = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return self.offset + index


@pytest.mark.parametrize("augment_seed", [True, False])
def test_a_worker_init_function_sees_the_scripts_own_dataset(augment_seed: bool) -> None:
    """Whatever we put around it."""
    loader = loader_of(
        _Offset(),
        4,
        shuffle=False,
        num_workers=2,
        worker_init_fn=_set_up,
        augment_seed=augment_seed,
    )
    assert list(loader) == [[100, 101, 102, 103], [204, 205, 206, 207]]
