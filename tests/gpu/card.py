"""The card that the tests here run on, what it is called, and the figures that they leave."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import torch

__all__ = ["CARD", "FIGURES_VARIABLE", "PATIENCE_S", "describe", "note", "spin"]

CARD = torch.device("cuda", 0)
PATIENCE_S = 60.0
"""Only a bound for a hang."""
FIGURES_VARIABLE = "ELASTICD_GPU_FIGURES"
"""Names the file that gets a line for each figure."""


def note(name: str, value: float, unit: str) -> None:
    """Keep a figure for the report; a test that is called by itself prints it."""
    line = json.dumps({"name": name, "value": value, "unit": unit})
    path = os.environ.get(FIGURES_VARIABLE)
    if path:
        with Path(path).open("a") as file:
            file.write(line + "\n")
    print(line)


def spin(seconds: float) -> None:
    """Keep the current stream busy for about so long, with a kernel that computes nothing."""
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


def _cycles_per_s() -> float:
    cuda: Any = torch.cuda
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    cuda._sleep(10_000_000)
    end.record()
    end.synchronize()
    taken_ms: float = start.elapsed_time(end)
    return 10_000_000 / taken_ms * 1000.0


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return next(iter(done.stdout.splitlines()), "unknown")
