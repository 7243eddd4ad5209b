"""Whether packages were installed since torch was imported: a fork would mix old and new ones."""

import importlib.util
import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["installation"]

_PLACES = ("site-packages", "dist-packages")
_PARTS_OF_TORCH = ("__init__.py", "version.py", "lib")


def installation() -> tuple[tuple[str, int], ...]:
    """Return the folders where packages are installed, and parts of torch, with the times of their
    changes.

    pip makes and removes entries of such a folder whatever it installs. Call it before the imports
    and compare later.
    """
    paths = [Path(entry) for entry in sys.path if entry.endswith(_PLACES)]
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.origin is not None:
            paths += [Path(spec.origin).with_name(name) for name in _PARTS_OF_TORCH]
    found = []
    for path in paths:
        with suppress(OSError):
            found.append((str(path), os.stat(path).st_mtime_ns))
    return tuple(found)
