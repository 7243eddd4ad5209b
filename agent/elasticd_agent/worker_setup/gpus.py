"""The GPUs of this node, by the names under which the environment shows them to a worker.

No library of NVIDIA's or AMD's is asked: the agent must neither open a context nor import torch.
Device nodes keep the host's numbers in a container (`/dev/nvidia4`), while CUDA and HIP number what
they find from 0; so the nodes are counted and never quoted.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MASKS", "Gpus", "visible_gpus"]

MASKS = frozenset({"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"})
"""The variables that hide GPUs from a process."""

_MASKS_OF_AMD = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""AMD's variables, in the order in which HIP reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The GPUs for this node's slots, one each, in this order."""

    names: tuple[str, ...] = ()
    is_amd: bool = False

    def mask(self, names: list[str]) -> dict[str, str]:
        """Return the environment that shows these GPUs and hides all others."""
        shown = ",".join(names)
        mask = {"CUDA_VISIBLE_DEVICES": shown}
        return {**mask, "HIP_VISIBLE_DEVICES": shown} if self.is_amd else mask


def visible_gpus(
    environ: Mapping[str, str], dev: Path = Path("/dev"), sys: Path = Path("/sys")
) -> Gpus:
    """Return the GPUs that a process with this environment may use."""
    nvidia = sum(1 for each in _entries(dev) if re.fullmatch(r"nvidia[0-9]+", each))
    if nvidia:
        return Gpus(names=_shown(environ.get("CUDA_VISIBLE_DEVICES"), nvidia))
    amd = _count_of_amd(dev, sys)
    below = environ.get("ROCR_VISIBLE_DEVICES")
    if below is not None:
        # The runtime below HIP hides some first, and HIP numbers the rest from 0.
        amd = len(_shown(below, amd))
    mask = next((environ[name] for name in _MASKS_OF_AMD if name in environ), None)
    return Gpus(names=_shown(mask, amd), is_amd=amd > 0)


def _shown(mask: str | None, count: int) -> tuple[str, ...]:
    if mask is None:
        return tuple(str(number) for number in range(count))
    # CUDA ignores everything from the first entry on that it does not know, as in "0,-1".
    named: list[str] = []
    for part in (each.strip() for each in mask.split(",")):
        if part in ("", "-1"):
            break
        named.append(part)
    # One card may be cut into several (MIG), which have names and no device nodes of their own.
    is_cut = all(part.startswith("MIG-") for part in named)
    return tuple(named if is_cut else named[:count]) if count else ()


def _count_of_amd(dev: Path, sys: Path) -> int:
    """Count the compute nodes of AMD's kernel driver that this container was given."""
    if not (dev / "kfd").exists():
        return 0
    rendering = set(_entries(dev / "dri"))
    count = 0
    for node in _entries(sys / "class/kfd/kfd/topology/nodes"):
        path = sys / "class/kfd/kfd/topology/nodes" / node / "properties"
        try:
            lines = dict(line.split(maxsplit=1) for line in path.read_text().splitlines() if line)
        except (OSError, ValueError):
            continue  # The cgroup denies what belongs to another container.
        is_gpu = lines.get("simd_count", "0").strip() != "0"
        count += is_gpu and f"renderD{lines.get('drm_render_minor', '').strip()}" in rendering
    return count


def _entries(folder: Path) -> Iterator[str]:
    try:
        yield from os.listdir(folder)
    except OSError:
        return
