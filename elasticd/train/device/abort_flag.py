"""A flag that a generation's abort raises, and that kernels on the device read.

Kernels behind an aborted collective run on, with sums that lack a rank. Torch's fused optimizers
leave everything as it is where a number on the device, `found_inf`, is 1: a GradScaler reports an
overflow to them in this way. So the flag is a number in pinned host memory, which any thread can
write while the device hangs, and the device copies it into its own memory in the order of its
stream: after the collectives, before the optimizer. The number that it found then goes back to the
host.

Rejected: to hand the pinned number itself to the optimizer. Torch would copy it to the device once
for each parameter group, SGD with a wait of the host, and a flag that is raised in between would
make half a step.
"""

from typing import Any

import torch

from elasticd.tensors import cuda

__all__ = ["AbortFlag", "FlagReading"]


class AbortFlag:
    """The flag of one generation; nobody lowers it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._number = _host_number(device)

    def set(self) -> None:
        """Raise the flag, before the collectives of the generation are woken; any thread."""
        self._number.fill_(1.0)

    def read(self, begun: int | None = None) -> "FlagReading":
        """Queue a read of the flag behind all kernels that the current stream has so far.

        `begun` is the number of collectives among them; None if nobody counts them.
        """
        return FlagReading(self._number, self.device, begun)


class FlagReading:
    """The flag's value when the device came to one read of it: all later kernels see this value.

    Each reading has tensors of its own, since an optimizer may still read those of the reading
    before.
    """

    def __init__(
        self, number: torch.Tensor, device: torch.device, begun: int | None = None
    ) -> None:
        self.begun = begun
        with torch.no_grad():
            if device.type == "cpu":
                self.found_inf = self._host_value = number.clone()
                self._event: Any = cuda.NOTHING
                return
            self.found_inf = _device_number(device)
            self.found_inf.copy_(number, non_blocking=True)
            self._host_value = _host_number(device)
            self._host_value.copy_(self.found_inf, non_blocking=True)
        self._event = cuda.mark(device)

    def query(self) -> bool:
        """Return whether the device has come to this read, like the `query` of a CUDA event."""
        return bool(self._event.query())

    def is_set(self) -> bool:
        """Return whether the flag was up; call it only once `query` has returned True."""
        return float(self._host_value) != 0.0


def _host_number(device: torch.device) -> torch.Tensor:
    """Return a zero in memory that the device reads and writes by itself; it has no dimension,
    because torch subtracts it from counts of steps that have none.
    """
    return torch.zeros((), dtype=torch.float32, device="cpu", pin_memory=device.type == "cuda")


def _device_number(device: torch.device) -> torch.Tensor:
    return torch.empty((), dtype=torch.float32, device=device)
