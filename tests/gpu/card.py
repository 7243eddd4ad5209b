"""The card that the tests here run on, what it is called, and the figures that they leave."""

import functools
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

__all__ = ["CARD", "FIGURES_VARIABLE", "PATIENCE_S", "describe", "note", "spin"]

CARD = torch.device("cuda", 0)
PATIENCE_S = 60.0
"""Only a bound for a hang."""
FIGURES_VARIABLE = "ELASTICD_GPU_FIGURES"
"""Names the file that gets a line for each figure."""
_CLOCK_S = 0.5
"""A card that has rested takes some tenths of a second to reach its full clock."""


def note(name: str, value: float, unit: str) -> None:
    """Keep a figure for the report; a test that is called by itself prints it."""
    line = json.dumps({"name": name, "value": value, "unit": unit})
    path = os.environ.get(FIGURES_VARIABLE)
    if path:
        with Path(path).open("a") as file:
            file.write(line + "\n")
    print(line)


def spin(seconds: float) -> None:
    """Keep the current stream busy for so long, with a kernel that computes nothing; longer where
    the card's clock is lower than it was.
    """
    cuda: Any = torch.cuda
    cuda._sleep(int(seconds * _cycles_per_s()))


def describe() -> dict[str, str]:
    """Card, driver and versions."""
    of_card: Any = torch.cuda.get_device_properties(CARD)
    nccl: Any = torch.cuda.nccl
    return {
        "card": f"{of_card.name}, {of_card.total_memory >> 30} GiB",
        "driver": _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "torch": str(torch.__version__),
        "CUDA or HIP": str(torch.version.cuda or torch.version.hip),
        "NCCL or RCCL": ".".join(map(str, nccl.version())),
    }


@functools.cache
def _cycles_per_s() -> float:
    """Return the highest clock that was seen, so that no spin is shorter than it was meant to be.

    It is measured once, on a stream of its own: each look waits for the device.
    """
    cuda: Any = torch.cuda
    found, until_s = 0.0, time.monotonic() + _CLOCK_S
    with cuda.stream(cuda.Stream(CARD)):
        while time.monotonic() < until_s:
            start, end = (cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            cuda._sleep(10_000_000)
            end.record()
            end.synchronize()
            found = max(found, 10_000_000 / start.elapsed_time(end) * 1000.0)
    return found


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return next(iter(done.stdout.splitlines()), "unknown")
