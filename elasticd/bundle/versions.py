"""Lists the versions that are installed on this machine, without an import of the packages.

Torch takes a second to import, and an agent never imports it; a text file in torch's folder tells
how it was built.
"""

import platform
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from elasticd import __version__

__all__ = ["versions"]

PACKAGES = ("torch", "fsspec", "s3fs", "gcsfs", "adlfs", "grpcio", "etcd3", "numpy", "safetensors")
_DRIVER = Path("/proc/driver/nvidia/version")
_BUILT = re.compile(r"^(cuda|hip|git_version|debug)\b[^=\n]*= *'?([^'\n]*)'?$", re.MULTILINE)
_LIMIT_BYTES = 1 << 16


def versions() -> Mapping[str, str]:
    """Return the versions by name; a missing or unknown version is left out."""
    found = {
        "elasticd": __version__,
        "python": sys.version.split("\n")[0],
        "executable": sys.executable,
        "system": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
    }
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    found |= _torch()
    for package in metadata.distributions():
        name = (package.metadata["Name"] or "").lower()
        if name.startswith(("nvidia-nccl", "nvidia-cuda-runtime", "nvidia-cudnn", "rccl")):
            found[name] = package.version
    with suppress(OSError, ValueError):
        found["nvidia driver"] = _DRIVER.read_text().split("\n")[0]
    return {name: value for name, value in found.items() if value}


def _torch() -> Mapping[str, str]:
    """Return the platform for which torch was built, from torch's own file."""
    with suppress(metadata.PackageNotFoundError, OSError, ValueError):
        path = metadata.distribution("torch").locate_file("torch/version.py")
        with open(str(path), encoding="utf-8") as file:
            built = dict(_BUILT.findall(file.read(_LIMIT_BYTES)))
        return {f"torch {name}": value for name, value in built.items()}
    return {}
