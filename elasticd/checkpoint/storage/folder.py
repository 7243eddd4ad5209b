"""A folder of a mounted file system as a bucket, by plain system calls.

An object is written whole or not at all, and never over another: as a hidden file in the same
folder, fsync, and a hard link, which fails if the name is taken (on NFS too). A rename would
replace the other object.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from elasticd.checkpoint.storage.bucket import Data, ListedObject, ObjectMissing
from elasticd.errors import EnvironmentProblem, Refused, Unavailable

__all__ = ["FolderBucket"]

_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_MISSING = {errno.ENOENT, errno.ENOTDIR}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}

FOLDER_TRIES = 10
"""A new folder may be gone at once, because a deletion of the last object removes it."""


class FolderBucket:
    """A `Bucket` over one folder, which is made with its first object."""

    def __init__(self, path: str) -> None:
        self._root = Path(path)
        self._known: set[Path] = set()

    @property
    def url(self) -> str:
        return f"file://{self._root}"

    def create(self, name: str, data: Data) -> bool:
        """Create the object under its name, which no other writer may have taken.

        Raises: EnvironmentProblem: the file system has no hard links. OSError: the file cannot be
        written.
        """
        with self._writing(name), self._beside(name, data) as written:
            try:
                os.link(written, self._root / name)
            except FileExistsError:
                if os.stat(written).st_nlink == 1:
                    # Who wrote it may have died before this: what is going to name it must last.
                    self._sync((self._root / name).parent)
                    return False  # With 2 it is our own: NFS asked again, its answer was lost.
            except OSError as exc:
                if exc.errno in _NO_LINKS:
                    raise EnvironmentProblem(
                        f"The file system of {self._root} has no hard links ({exc.strerror}), by "
                        "which one writer is told from another: give the URL of another."
                    ) from exc
                raise
            self._sync((self._root / name).parent)
            return True

    def replace(self, name: str, data: Data) -> None:
        with self._writing(name), self._beside(name, data) as written:
            os.replace(written, self._root / name)
            self._sync((self._root / name).parent)

    def read(self, name: str, limit_bytes: int) -> bytes:
        with self._translated(name), (self._root / name).open("rb", buffering=0) as file:
            size = min(os.fstat(file.fileno()).st_size, limit_bytes + 1)
            data = bytearray(size)
            return bytes(data[: _fill(file.fileno(), 0, memoryview(data))])

    def read_into(self, name: str, start: int, place: memoryview) -> int:
        with self._translated(name), (self._root / name).open("rb", buffering=0) as file:
            return _fill(file.fileno(), start, place)

    def delete(self, names: Iterable[str]) -> None:
        folders = set()
        for name in names:
            with self._translated(name):
                (self._root / name).unlink(missing_ok=True)
            folders.add((self._root / name).parent)
        for folder in folders - {self._root}:
            with contextlib.suppress(OSError):  # Something else is in it.
                folder.rmdir()
            self._known.discard(folder)

    def list(self, prefix: str, limit: int, keep: Callable[[str], bool]) -> list[ListedObject]:
        found: list[ListedObject] = []
        with self._translated(prefix):
            for folder, _, files in os.walk(self._root / prefix):
                for file in files:
                    path = Path(folder, file)
                    name = str(path.relative_to(self._root))
                    if not keep(name):
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        seen = path.stat()
                        found.append(
                            ListedObject(
                                name=name, size=seen.st_size, modified_unix_s=seen.st_mtime
                            )
                        )
                    if len(found) >= limit:
                        return found
        return found

    @contextmanager
    def _beside(self, name: str, data: Data) -> Iterator[Path]:
        """Write a hidden file in the folder of `name`, durably; it is removed afterwards in any
        case.
        """
        final = self._root / name
        # Not by the final name: whoever looks for files like it should not take this for one.
        path = final.with_name(f".{secrets.token_hex(8)}.tmp")
        line = self._opened(path)
        try:
            try:
                view = memoryview(data).cast("B")
                while view:
                    view = view[os.write(line, view[: 64 << 20]) :]
                os.fdatasync(line)
            finally:
                os.close(line)
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _opened(self, path: Path) -> int:
        """Open a new file for writing; create its folder if there is none."""
        for _ in range(FOLDER_TRIES):
            try:
                if path.parent not in self._known:
                    self._make(path.parent)
                    self._known.add(path.parent)
                return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                self._known.discard(path.parent)  # Somebody deleted the empty folder meanwhile.
        raise Unavailable(
            f"{path.parent} cannot be made, or is deleted at once: give a folder that this process "
            "may write to and nothing else cleans up."
        )

    def _make(self, folder: Path) -> None:
        """Create a folder and those above it, so that they survive a loss of power too."""
        if folder.is_dir():
            return
        if folder.parent != folder:
            self._make(folder.parent)
        folder.mkdir(exist_ok=True)
        self._sync(folder.parent)

    @staticmethod
    def _sync(folder: Path) -> None:
        line = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(line)
        finally:
            os.close(line)

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """Translate errors of a write, where a missing file is no valid answer."""
        try:
            with self._translated(name):
                yield
        except (ObjectMissing, Unavailable) as exc:
            if isinstance(exc.__cause__, NotADirectoryError | FileExistsError):
                raise EnvironmentProblem(
                    f"{self._root / name} cannot be written, since a file stands where a folder "
                    "should: remove it, or give another URL."
                ) from exc
            if isinstance(exc, ObjectMissing):
                raise Unavailable(f"{self._root / name} was deleted while it was written.") from exc
            raise

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            path, why = self._root / name, exc.strerror or str(exc)
            if exc.errno in _MISSING:
                raise ObjectMissing(f"There is no {path}.") from exc
            if exc.errno in _REFUSED:
                raise Refused(
                    f"{path} cannot be accessed ({why}): give this user the permission, or another "
                    "URL."
                ) from exc
            if exc.errno in _FULL:
                raise EnvironmentProblem(
                    f"{path} cannot be written ({why}): free some space, or give another URL."
                ) from exc
            raise Unavailable(f"{path} cannot be accessed ({why}).") from exc


def _fill(line: int, start: int, place: memoryview) -> int:
    done = 0
    while done < len(place):
        count = os.preadv(line, [place[done:]], start + done)
        if count == 0:
            break
        done += count
    return done
