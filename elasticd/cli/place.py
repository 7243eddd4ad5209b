"""What this machine has: GPUs, CPUs, an address that others reach. No torch, no DNS."""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["cpu_count", "gpu_count", "own_address"]


def gpu_count(environ: Mapping[str, str], dev: Path = Path("/dev")) -> int:
    """Count the NVIDIA GPUs, or those that CUDA_VISIBLE_DEVICES leaves."""
    present = sum(
        1 for entry in dev.glob("nvidia*") if re.fullmatch(r"nvidia[0-9]+", entry.name) is not None
    )
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not present:
        return present
    # CUDA ignores everything from the first entry on that it does not know, as in "0,-1".
    named = []
    for part in visible.split(","):
        if part.strip() in ("", "-1"):
            break
        named.append(part)
    return min(len(named), present)


def cpu_count() -> int:
    """CPUs that this process may use, as torchrun counts them."""
    return len(os.sched_getaffinity(0))


def own_address(endpoint: str) -> str:
    """Give the address of the interface that leads to etcd.

    A connected UDP socket sends nothing but makes the kernel choose a route and a source address;
    a machine's own host name often resolves to 127.0.1.1, or not at all (pytorch#73380).
    """
    parts = urlsplit(endpoint)
    host = parts.hostname or "127.0.0.1"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, parts.port or 2379))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
