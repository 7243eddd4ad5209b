"""Which device this worker trains on: the GPU of its slot, or the CPU if its node has none.

The slot chooses, not the rank: a rank may differ in each generation, and a replacement must use the
card of its predecessor. ROCm has the same names in torch.
"""

import functools
import os
import sys
from collections.abc import Mapping

import torch

from elasticd.errors import EnvironmentProblem

__all__ = ["CPU", "device", "use_device"]

CPU = torch.device("cpu")


@functools.cache
def device() -> torch.device:
    """Return the device for the model: this worker's own GPU, or the CPU if there is none.

    The answer is the same for the whole life of the process.

    Raises: EnvironmentProblem: the agent counted on a GPU for this worker, and torch finds none.
    """
    is_built = torch.version.cuda is not None or torch.version.hip is not None
    index = _index(os.environ, torch.cuda.device_count(), is_built=is_built)
    return CPU if index is None else torch.device("cuda", index)


def use_device() -> torch.device:
    """Make this worker's GPU the one that torch means by "the current device"; return it.

    Without this call every process would open a context on the node's first GPU, and calls that
    name no device (an event, a generator, torch's `barrier`) would use that GPU.
    """
    own = device()
    if own.type == "cuda":
        torch.cuda.set_device(own)
    return own


def _index(env: Mapping[str, str], visible: int, *, is_built: bool) -> int | None:
    """Return the number of the GPU among those that torch sees; None means the CPU."""
    counted = _number(env, "ELASTICD_GPUS")
    slot = _number(env, "ELASTICD_SLOT")
    if is_built and counted and slot is not None and slot >= counted:
        raise EnvironmentProblem(
            f"This is the worker of slot {slot} on a node with {counted} GPUs: start no more "
            "workers per node than it has GPUs (--nproc-per-node, --slots), or give "
            "--env CUDA_VISIBLE_DEVICES= to train on the CPU."
        )
    if visible == 0:
        if counted and is_built:
            raise EnvironmentProblem(
                f"This node has {counted} GPUs, and torch {torch.__version__} finds none of them "
                f"({_masks(env)}): look at the driver (nvidia-smi, rocm-smi), or give "
                "--env CUDA_VISIBLE_DEVICES= to train on the CPU."
            )
        if counted:
            sys.stderr.write(
                f"elasticd: this node has {counted} GPUs, and torch {torch.__version__} is built "
                "without CUDA: the training runs on the CPU.\n"
            )
        return None
    if counted or slot is None:
        # The agent shows a worker the GPUs of its world's slots, and LOCAL_RANK was its place among
        # them when it was started. A worker that sees just one GPU has been given its own.
        place = (_number(env, "LOCAL_RANK") or 0) if visible > 1 else 0
    else:
        place = slot  # The agent could count none (WSL), so nothing is hidden.
    if place >= visible:
        raise EnvironmentProblem(
            f"This is worker {place} of its node, which shows it {visible} GPUs: start no more "
            "workers per node than it has GPUs."
        )
    return place


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _masks(env: Mapping[str, str]) -> str:
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    return ", ".join(f"{name}={env[name]}" for name in names if name in env) or "no mask is set"
