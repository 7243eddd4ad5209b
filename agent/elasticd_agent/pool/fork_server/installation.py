"""Whether packages were installed since torch was imported: a fork would mix old and new ones."""

import importlib.util
import os
import sys
from contextlib import suppress
from pathlib import Path

from elasticd_agent.pool.fork_server.fork_check import Installation

__all__ = ["installation"]

_PLACES = ("site-packages", "dist-packages")
_RECORD = (".dist-info", ".egg-info")
_PARTS_OF_TORCH = ("__init__.py", "version.py", "lib")


def installation() -> Installation:
    """Return the names of the installed packages, and what shows a change under the same name.

    An installer makes or changes a package's folder of records, whatever it installs. The time of
    the whole folder says nothing: Python keeps compiled modules there. Call it before the imports
    and compare later.
    """
    found: set[tuple[str, int]] = set()
    for place in (entry for entry in sys.path if entry.endswith(_PLACES)):
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if entry.name != "__pycache__":
                    is_record = entry.name.endswith(_RECORD)
                    found.add((entry.path, entry.stat().st_mtime_ns if is_record else 0))
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.origin is not None:
            for name in _PARTS_OF_TORCH:
                path = Path(spec.origin).with_name(name)
                with suppress(OSError):
                    found.add((str(path), os.stat(path).st_mtime_ns))
    return frozenset(found)
