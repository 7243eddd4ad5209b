"""Checks that the script exists, and names the job after it."""

import os
import re
import shutil
from pathlib import Path

from elasticd.cli.run.request import Mode, RunRequest
from elasticd.errors import CallError, NotFound
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec

__all__ = ["check_entry", "default_job_name"]


def check_entry(request: RunRequest, here: Path) -> None:
    """Check that the script can be read, or that the program can be started.

    Of a module only a file's name is refused, since only its interpreter can find it. Nothing is
    checked if `--cwd` names a folder on other machines.

    Raises: NotFound, CallError: the script or program cannot be used; the message says why.
    """
    draft = request.draft
    if draft.cwd and request.mode is Mode.SUBMIT:
        return
    if draft.cwd and not Path(draft.cwd).is_dir():
        raise NotFound(f"--cwd {draft.cwd} is not a folder.")
    entry = draft.entry
    if draft.entry_kind is EntryKind.COMMAND and "/" not in entry:
        if shutil.which(entry) is None:
            raise NotFound(f"The program {entry} was not found on PATH: give its path.")
        return
    path = here / draft.cwd / entry
    if draft.entry_kind is EntryKind.MODULE:
        if entry.endswith(".py") and path.is_file():
            raise CallError(
                f"-m {entry} names a file, and -m takes the name of a module: leave out -m, or the "
                "ending .py."
            )
        return
    if path.is_dir():
        raise CallError(f"The script {entry} is a folder: name a file, or a module with -m.")
    if not path.exists():
        hint = " On other machines alone? Then name their folder with --cwd."
        raise NotFound(
            f"The script {entry} was not found in {path.parent}: check its path."
            + (hint if request.mode is Mode.SUBMIT else "")
        )
    if not path.is_file():
        raise CallError(
            f"The script {entry} is no regular file, and each worker reads it anew: name a file."
        )
    if draft.entry_kind is EntryKind.COMMAND and not os.access(path, os.X_OK):
        raise CallError(f"The program {entry} cannot be executed: give it the right (chmod +x).")
    if not os.access(path, os.R_OK):
        raise CallError(f"The script {entry} cannot be read: check its permissions.")


def default_job_name(
    draft: JobSpec, stamp: str, run_folder: Path | None, unique: str = ""
) -> JobName:
    """Return a name made of the script and the time that no job in the run folder has.

    `unique` is appended if others may choose a name for the same cluster in the same second.
    """
    entry = draft.entry
    if draft.entry_kind is EntryKind.COMMAND and draft.args[:1] == ("-u",):
        # Most likely an interpreter's flags; but any program may have a flag of this name.
        words = [word for word in draft.args[1:3] if word != "-m"]
        entry = words[0] if words else entry
    stem = entry.rpartition(".")[2] if draft.entry_kind is EntryKind.MODULE else Path(entry).stem
    usable = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:40] or "job"
    stamp = f"{stamp}-{unique}" if unique else stamp
    name, number = f"{usable}-{stamp}", 1
    # `Path.exists` raises if the folder belongs to another user; creating it reports this later.
    while run_folder is not None and os.path.exists(run_folder / name):
        number += 1
        name = f"{usable}-{stamp}-{number}"
    return JobName(name)
