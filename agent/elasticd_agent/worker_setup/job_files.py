"""Writes the files of a job's spec on each node, and reads variables whose values stand in files.

A Secret of Kubernetes that is mounted on the nodes is named in the spec and read here, so that its
value is never in etcd. The values are kept in memory and given to workers alone.
"""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from elasticd.control.local_run.run_folder import SPEC_FILES, make_private

__all__ = ["folder_of", "read_variables", "write_files"]

VALUE_LIMIT_BYTES = 100_000
"""The size limit of one variable: the kernel takes 128 KiB for a name and its value."""


def folder_of(run_folder: Path, job: str) -> Path:
    """Return the folder of a job's files, in which its workers start."""
    return run_folder / job / SPEC_FILES


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files into the folder; another agent that has the folder may do the same at this
    moment.

    A file that begins with `#!` is made executable.

    Raises: OSError: the folder cannot be written. ValueError: a name leads out of the folder.
    """
    for name in files:
        if name.startswith("/") or not {"", ".", ".."}.isdisjoint(name.split("/")):
            raise ValueError(f"the file {name!r} would not lie in the job's folder")
    make_private(folder)
    for name, text in files.items():
        path = folder / name
        content = text.encode()
        with suppress(FileNotFoundError):
            if path.read_bytes() == content:
                continue
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not by the process number: of agents in pods that share a volume, each may be number 1.
        partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        partial.write_bytes(content)
        partial.chmod(0o700 if text.startswith("#!") else 0o600)
        partial.rename(path)


def read_variables(files: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose values are the contents of files.

    Raises: OSError: a file is missing or cannot be read. ValueError: its content cannot be a
    variable; the message names it.
    """
    found = {}
    for name, path in files.items():
        with open(path, "rb") as opened:
            content = opened.read(VALUE_LIMIT_BYTES + 1)
        if len(content) > VALUE_LIMIT_BYTES:
            raise ValueError(f"{path} for {name} has more than {VALUE_LIMIT_BYTES} bytes")
        if b"\0" in content:
            raise ValueError(f"{path} for {name} has a byte 0, which no variable may have")
        try:
            found[name] = content.decode()
        except UnicodeDecodeError as exc:
            raise ValueError(f"{path} for {name} is no text in UTF-8") from exc
    return found
