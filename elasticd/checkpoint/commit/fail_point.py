"""Named places at which a test lets a process die, once: between any two steps of a save.

Without a test it costs a look into an empty dict. `TEST_FAIL_POINT=NAME,FOLDER`: the first process
that comes to NAME kills itself, and leaves a file in FOLDER so that no other does.
"""

import os
import signal
from pathlib import Path

__all__ = ["POINTS", "fail_point"]

POINTS = (
    "save.claimed",
    "save.copied",
    "save.told",
    "upload.begun",
    "upload.parts",
    "upload.fragment",
    "commit.gathered",
    "commit.manifest",
    "commit.entry",
)
"""The places, in the order of a save."""

_NAME, _, _FOLDER = os.environ.get("TEST_FAIL_POINT", "").partition(",")


def fail_point(name: str) -> None:
    """Die here if that is asked for."""
    if name != _NAME:
        return
    try:
        Path(_FOLDER, name).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
