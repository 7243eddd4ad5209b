"""Named places at which a test lets a process die, once: between any two steps of a save.

Without a test it costs a comparison of two strings. `TEST_FAIL_POINT=NAME,FOLDER` stands in the
environment of keepers and workers: the first process that comes to NAME kills itself, and leaves a
file in FOLDER so that no other does.
"""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

__all__ = ["POINTS", "arm_fail_point", "fail_point"]

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

_NAME = _FOLDER = ""


def arm_fail_point(env: Mapping[str, str]) -> None:
    """Read from this process's environment, `env`, at which place the process dies."""
    global _NAME, _FOLDER
    _NAME, _, _FOLDER = env.get("TEST_FAIL_POINT", "").partition(",")


def fail_point(name: str) -> None:
    """Kill this process if the environment names this place."""
    if name != _NAME:
        return
    try:
        Path(_FOLDER, name).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
