"""The program of a call of `elasticd run`, its number of workers, and its variables. Pure."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elasticd.cli.parse_value import MOST_DIGITS
from elasticd.cli.run.rendezvous_flags import Mode
from elasticd.errors import CallError, NotSupported
from elasticd.records.job import EntryKind

__all__ = ["entry_of", "env_of", "workers_of"]


def entry_of(
    values: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[EntryKind, str, tuple[str, ...]]:
    """Return the program to start: its kind, the script, module or program, and the arguments.

    Raises: CallError: there is no such interpreter, or a path is given as a module.
    """
    script, args = str(values["script"]), tuple(values["script_args"])
    is_module = bool(values["module"]) and not values["run_path"]
    if is_module and "/" in script:
        raise CallError(
            f"-m {script} is a path, and -m takes the name of a module: write elasticd run "
            f"{script}, or -m with dots and without the ending .py."
        )
    if values["no_python"] and not values["run_path"]:
        return EntryKind.COMMAND, script, args
    python = values["python"] or environ.get("PYTHON_EXEC")
    if python:
        # The warm pool cannot fork another interpreter, so it is started as a program.
        found = shutil.which(python) if "/" not in python else python
        if found is None or not Path(found).is_file():
            raise CallError(f"The interpreter {python} was not found: give the path of a python.")
        return EntryKind.COMMAND, found, ("-u", *(("-m",) if is_module else ()), script, *args)
    return (EntryKind.MODULE if is_module else EntryKind.SCRIPT), script, args


def workers_of(text: str | None, mode: Mode, *, gpus: int, cpus: int) -> int:
    """Return the number of workers on each node; 0 for as many as each node has slots.

    Raises:
        CallError: the text is no number above 0 and no word that counts devices here.
        NotSupported: devices of this kind are not supported.
    """
    if text is None:
        return 1
    if text.isdecimal() and len(text) <= MOST_DIGITS and int(text) > 0:
        return int(text)
    if text in ("auto", "gpu", "cpu") and mode is Mode.SUBMIT:
        return 0
    if text == "gpu" and gpus == 0:
        raise CallError("--nproc-per-node gpu: there is no GPU of NVIDIA or AMD on this machine.")
    if text == "xpu":
        raise NotSupported("--nproc-per-node xpu is not supported: give the number of devices.")
    if text in ("auto", "gpu"):
        return gpus or cpus
    if text == "cpu":
        return cpus
    raise CallError(f"--nproc-per-node {text} is not a number above 0, auto, gpu or cpu.")


def env_of(pairs: Sequence[str], environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of the workers; a name without a value copies this process's variable.

    Raises: CallError: a pair has no name, or a copied variable is not set here.
    """
    env = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not key or (not sign and key not in environ):
            raise CallError(f"--env {pair!r} is not KEY=VALUE, nor a variable that is set here.")
        env[key] = value if sign else environ[key]
    return env
