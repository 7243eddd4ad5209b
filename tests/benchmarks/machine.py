"""Where the figures come from: the machine and the versions."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from elasticd.store.private_etcd.etcd_program import find_etcd

__all__ = ["describe"]


def describe() -> dict[str, str]:
    """Return what a reader needs to compare, for people."""
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    return {
        "cores": f"{len(os.sched_getaffinity(0))} ({_cpu_model()})",
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "load average at the start (1, 5, 15 minutes)": load,
        "Python": platform.python_version(),
        "torch": _version("torch"),
        "etcd": _etcd_version(),
        "grpcio": _version("grpcio"),
        "elasticd": _version("elasticd"),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _etcd_version() -> str:
    answer = subprocess.run(
        [find_etcd(), "--version"], capture_output=True, text=True, timeout=20, check=False
    )
    return answer.stdout.partition("\n")[0].removeprefix("etcd Version: ")
