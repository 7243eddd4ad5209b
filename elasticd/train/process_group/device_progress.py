"""How far this rank's GPU is, to find the rank for which the others wait.

The CPU queues collectives ahead of the device, so when one card stalls all ranks have begun the
same number of them. But the waiting ranks have done their own part of the step. An event after the
last gradient's kernels, and before the wait for what is reduced, distinguishes them: if it is not
done, the rank has not reached the collectives that it has begun since the last step.

This helps only if no collective interrupts the backward pass, as with DistributedDataParallel. With
FSDP2 all ranks wait within the pass, and no rank is named. Nor is one if a CUDA graph has the
backward pass: nobody is called when a graph runs.
"""

from collections.abc import Iterable
from typing import Any

import torch

from elasticd.tensors import cuda
from elasticd.train.optimizer.optimizer_undo import parameters_of

__all__ = ["DeviceProgress"]


class DeviceProgress:
    """The progress of one generation.

    Any thread may call `count`; the training thread calls the rest.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event: Any = None
        self._completed = 0
        self._hook: Any = None

    def watch(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Watch the first parameter of the model: its gradient is the last one made."""
        every = (tensor for each in optimizers for tensor in parameters_of(each))
        first = next((tensor for tensor in every if tensor.requires_grad and tensor.is_cuda), None)
        if first is not None and self._hook is None:
            watched: Any = first
            self._hook = watched.register_post_accumulate_grad_hook(self._made)

    def completed(self, begun: int) -> None:
        """Take note that so many of the begun collectives are done on the device."""
        self._completed = max(self._completed, begun)

    def count(self, begun: int) -> int:
        """Return how many of the begun collectives the device has reached."""
        event = self._event
        try:
            is_here = event is None or cuda.is_done(event, self._device)
        except RuntimeError:  # The device has failed, which the training thread meets as well.
            is_here = True
        return begun if is_here else min(begun, self._completed)

    def close(self) -> None:
        """Leave the parameter as it was."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _made(self, parameter: torch.Tensor) -> None:
        # An event in a CUDA graph is never done, and to ask for it makes the capture fail.
        if torch.cuda.is_current_stream_capturing():
            return
        # Autograd's thread has the stream of the forward pass.
        self._event = cuda.mark(self._device)
