"""Whether the user as whom workers run may read what they are started from.

This is asked before a job's first worker. Else that worker ends with an exit code of the
interpreter's, is started again and ends so again, which uses up the restarts of a job whose script
has no error. Only rights are judged: that a file is missing is for the interpreter to say.

The kernel is asked by a try. `access` judges by the real user of a process, and where a C library
works out the answer for the effective one (before Linux 5.8), it does not know of ACLs.
"""

import os
import pwd
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from elasticd.records.job import EntryKind, JobSpec

__all__ = ["check_access"]


def check_access(spec: JobSpec, cwd: str, environ: Mapping[str, str]) -> None:
    """Check that workers with this environment may use their folder, interpreter and script.

    It may wait for a disk.

    Raises: PermissionError: the user as whom they run may not; one sentence says what to do.
    """
    folder, entry = Path(cwd).absolute(), spec.entry
    _check("enter", "the working directory", folder, _may_enter)
    is_module = spec.entry_kind is EntryKind.MODULE
    if spec.entry_kind is EntryKind.COMMAND:
        if "/" in entry:
            what = "the program" if spec.needs_no_torch else "the interpreter"
            _check("run", what, folder / entry, _may_run)
        if spec.needs_no_torch:
            return
        is_module = spec.args[1:2] == ("-m",)
        entry = next(iter(spec.args[2 if is_module else 1 :]), "")
    elif "/" in spec.python:
        _check("run", "the interpreter", folder / spec.python, _may_run)
    if is_module:
        is_own = not spec.python and spec.entry_kind is EntryKind.MODULE
        _check_module(entry, _search_path(folder, environ), is_own=is_own)
    elif entry:
        for path in (folder / entry, folder / entry / "__main__.py"):
            _check("read", "the script", path, _may_read)


def _search_path(folder: Path, environ: Mapping[str, str]) -> list[Path]:
    """Return the folders in which a module is looked for before those of the installation."""
    return [folder, *(folder / each for each in environ.get("PYTHONPATH", "").split(":") if each)]


def _check_module(name: str, folders: list[Path], *, is_own: bool) -> None:
    """Check the first module of that name; one that is closed counts if Python finds no other.

    `is_own` says that our own interpreter runs it, so that its installed packages are known.
    """
    top, *rest = name.split(".")
    closed: Path | None = None
    for folder in folders:
        if not _may_read(folder):
            closed = closed or (folder if is_own else None)
            continue
        for path in (folder / top, folder / f"{top}.py"):
            if not os.path.exists(path):
                continue
            if os.path.isdir(path) and not _may_read(path):
                closed = closed or path
                continue
            for part in _parts(path, rest):
                _check("read", f"the module {name} in", part, _may_read)
            return
    if closed is not None and not (is_own and _is_installed(top)):
        _check("read", f"the module {name} in", closed, _may_read)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _parts(path: Path, rest: list[str]) -> Iterator[Path]:
    """Return the files that Python reads of a module, from its uppermost package on."""
    while os.path.isdir(path):
        yield path
        yield path / "__init__.py"
        if not rest:
            yield path / "__main__.py"
            return
        name, *rest = rest
        path = path / name if os.path.isdir(path / name) else path / f"{name}.py"
    yield path


def _check(right: str, what: str, path: Path, is_given: Callable[[Path], bool]) -> None:
    if is_given(path):
        return
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # A container's user needs no entry.
        name = str(uid)
    user = f"The user {name} of --worker-user" if os.getuid() != uid else f"The user {name}"
    above = reversed(Path(os.path.realpath(path)).parents)
    closed = next((each for each in above if not _may_enter(each)), None)
    if closed is None:
        mode = "o+rX" if right == "read" else "o+rx"
        raise PermissionError(
            f"{user} cannot {right} {what} {path}: give that user the right to "
            f"(chmod {mode} {shlex.quote(str(path))}), or choose what that user may {right}"
        )
    raise PermissionError(
        f"{user} cannot {right} {what} {path}, since it may not enter the folder {closed}: let "
        f"that user through (chmod o+x {shlex.quote(str(closed))}), or choose a place where it may"
    )


def _may_enter(folder: Path) -> bool:
    return _may(lambda: os.stat(f"{folder}/."))


def _may_read(path: Path) -> bool:
    def read() -> None:
        # Nothing but a file or a folder is opened: whoever writes into a pipe would see it.
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            os.stat(f"{path}/.")
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    return _may(read)


def _may_run(path: Path) -> bool:
    is_seen = _may(lambda: os.stat(path))
    return is_seen and (not os.path.exists(path) or os.access(path, os.X_OK, effective_ids=True))


def _may(attempt: Callable[[], object]) -> bool:
    """Return False if the attempt fails for want of a right, and for nothing else."""
    try:
        attempt()
    except PermissionError:
        return False
    except (OSError, ValueError):
        return True
    return True
