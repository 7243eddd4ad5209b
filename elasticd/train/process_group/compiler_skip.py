"""Functions that torch.compile leaves as they are."""

from contextlib import suppress
from types import FunctionType
from typing import Any

import torch

__all__ = ["hide_from_compilers"]


def hide_from_compilers(*functions: Any) -> None:
    """Make torch.compile leave these functions as they are.

    DistributedDataParallel calls them in the middle of a compiled forward or backward pass, and
    Dynamo treats a process group as an object of which it may know nothing. Dynamo's own decorator
    would import all of Dynamo with elasticd; a torch that has other names for these functions
    refuses such a script.
    """
    with suppress(AttributeError):
        frames = torch._C._dynamo.eval_frame
        skip = frames._FrameAction.SKIP
        strategy = frames._FrameExecStrategy(skip, skip)
        for value in functions:
            function = value.fget if isinstance(value, property) else value
            if isinstance(function, FunctionType):
                frames.set_code_exec_strategy(function.__code__, strategy)
