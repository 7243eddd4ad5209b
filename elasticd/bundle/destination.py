"""The place for a bundle: a folder or a file, on this machine or on a storage of fsspec."""

import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.checkpoint.storage.bucket import ObjectMissing
from elasticd.checkpoint.storage.location import checked_url, open_unprobed
from elasticd.checkpoint.storage.retry import RetryingBucket, RetryPolicy
from elasticd.errors import CallError, ElasticdError

__all__ = ["Destination", "check_writable", "destination_of", "write"]

SUFFIXES = (".tar.gz", ".tgz")
TRIAL_PATIENCE = RetryPolicy(limit_s=5.0)
TRIAL_NAME = ".elasticd-trial"
PATIENCE = RetryPolicy(limit_s=20.0)
"""The limit for retries of writes: a person waits, and may call again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    folder: str
    """The URL of the folder."""
    name: str = ""
    """The name of the file; empty if it has no name yet."""

    def named(self, name: str) -> "Destination":
        """Return the destination with a name for the file; a name that it has is kept."""
        return self if self.name else Destination(folder=self.folder, name=name)

    @property
    def url(self) -> str:
        """Return the destination for people: a path if it is a path, else a URL."""
        between = "" if self.folder.endswith("/") else "/"
        return f"{self.folder}{between}{self.name}".removeprefix("file://")


def destination_of(text: str, flag: str) -> Destination:
    """Parse a URL or a path: a text that ends with .tar.gz or .tgz is a file, others are folders.

    Raises: CallError: the text names nothing, is of no known kind, or contains credentials.
    """
    is_file = text.endswith(SUFFIXES)
    url = checked_url(text, flag=flag)
    if not is_file:
        return Destination(folder=url)
    folder, _, name = url.rpartition("/")
    if folder == "file://":
        folder = "file:///"
    elif folder.endswith(":/"):
        raise CallError(f"{flag} {text} names no bucket: give {folder}/BUCKET/{name}.")
    return Destination(folder=folder, name=name)


def check_writable(
    place: Destination, flag: str, options: Mapping[str, Any], environ: Mapping[str, str]
) -> None:
    """Write a small file to the destination, and delete it.

    A folder on this machine is not created for the check: its parent folder is checked. If a user
    may write but not delete, one small object is left.

    Raises: CallError, Unavailable: the destination cannot be written; the message says why.
    """
    if place.folder.startswith("file://"):
        _check_folder(Path(place.folder.removeprefix("file://") or "/"), place.name, flag)
        return
    # The name is unique: a user who may create objects need not have the right to overwrite or
    # delete them, and some storage allows one write a second for each name.
    trial = f"{TRIAL_NAME}-{secrets.token_hex(4)}"
    try:
        bucket = RetryingBucket(open_unprobed(place.folder, options, environ), TRIAL_PATIENCE)
        bucket.replace(trial, b"elasticd can write here.\n")
    except ObjectMissing as exc:
        raise CallError(f"{flag} cannot be written: {exc}") from exc
    except ElasticdError as exc:
        raise type(exc)(f"{flag} cannot be written: {exc}") from exc
    with suppress(ElasticdError):
        bucket.delete([trial])


def _check_folder(folder: Path, name: str, flag: str) -> None:
    there = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    why = ""
    if there.is_dir():
        try:
            tempfile.TemporaryFile(dir=there).close()
        except OSError as exc:
            why = exc.strerror or str(exc)
            if isinstance(exc, FileNotFoundError):  # A file system that takes no new files.
                why = f"no files can be made in {there}"
    else:
        why = f"{there} is {'a link to nothing' if there.is_symlink() else 'a file'}"
    if why := why or _why_no_file(folder, name):
        raise CallError(f"{flag} {folder / name} cannot be written ({why}): choose another place.")


def _why_no_file(folder: Path, name: str) -> str:
    """Return why no file can get this name; empty if one can, perhaps in place of an older one."""
    try:
        mode = (folder / name).lstat().st_mode
    except FileNotFoundError:
        return ""
    except OSError as exc:
        return exc.strerror or str(exc)
    if not name or stat.S_ISREG(mode) or stat.S_ISLNK(mode):
        return ""
    return f"{folder / name} is {'a folder' if stat.S_ISDIR(mode) else 'no regular file'}"


def write(
    place: Destination, data: bytes, options: Mapping[str, Any], environ: Mapping[str, str]
) -> None:
    """Write the file completely or not at all, over an older file of its name.

    Raises: CallError, Unavailable: the file cannot be written; the message says why.
    """
    try:
        bucket = RetryingBucket(open_unprobed(place.folder, options, environ), PATIENCE)
        with _private(place):
            bucket.replace(place.name, data)
    except ObjectMissing as exc:
        raise CallError(f"No bundle was written: {exc}") from exc
    except ElasticdError as exc:
        raise type(exc)(f"No bundle was written: {exc}") from exc


@contextmanager
def _private(place: Destination) -> Iterator[None]:
    """Open a file for writing that only its owner can read, since it contains logs."""
    if not place.folder.startswith("file://"):
        yield
        return
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
