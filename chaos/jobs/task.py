"""What the chaos jobs learn: small, in fp64, with noise, so that no loss comes near zero.

Rounding differs with the number of ranks, by some 1e-16 a step; a task whose training contracts
keeps it there for as many steps as one likes. So losses can be compared at 1e-9.
"""

import torch
from torch import nn
from torch.utils.data import Dataset

__all__ = ["WIDTH", "Noisy", "make_model", "make_optimizer"]

WIDTH = 8


class Noisy(Dataset[tuple[int, torch.Tensor, torch.Tensor]]):
    """Samples that know their own index."""

    def __init__(self, length: int) -> None:
        generator = torch.Generator().manual_seed(7)
        self._x = torch.randn(length, WIDTH, dtype=torch.float64, generator=generator)
        truth = torch.randn(WIDTH, 1, dtype=torch.float64, generator=generator)
        noise = torch.randn(length, 1, dtype=torch.float64, generator=generator)
        self._y = torch.tanh(self._x @ truth) + 0.3 * noise

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        return index, self._x[index], self._y[index]


def make_model() -> nn.Module:
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, 1)).double()


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3)
