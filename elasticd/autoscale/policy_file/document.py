"""Reads the policy file from disk."""

import os
import stat
from pathlib import Path

from elasticd.errors import CallError, NotFound

__all__ = ["LIMIT_BYTES", "document"]

LIMIT_BYTES = 64 * 1024
"""The size limit of a policy file, in bytes: a policy is a page of text, and becomes one record of
etcd."""


def document(path: str) -> str:
    """Return the text of a policy file.

    Raises:
        NotFound: there is no file of that name.
        CallError: the path is no regular file, or the file is not readable, too large or not text.
    """
    try:
        # Without O_NONBLOCK the call would wait for the writer of a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if stat.S_ISDIR(mode):
                raise CallError(_folder(path))
            if not stat.S_ISREG(mode):
                raise CallError(f"{path} is a device or a pipe: save the policy in a file.")
            content = opened.read(LIMIT_BYTES + 1)
    except IsADirectoryError as exc:
        raise CallError(_folder(path)) from exc
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise NotFound(f"There is no policy file {path!r}: check its name and folder.") from exc
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise CallError(f"The policy file {path!r} cannot be read: {why}.") from exc
    if len(content) > LIMIT_BYTES:
        raise CallError(
            f"{path} has more than {LIMIT_BYTES // 1024} KiB, which no policy has: name the policy "
            "file."
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise CallError(
            f"{path} is not text in UTF-8 (at byte {exc.start}): save it as such."
        ) from exc


def _folder(path: str) -> str:
    found = sorted(Path(path).glob("*.toml"))[:3]
    names = ", ".join(str(each) for each in found)
    return f"{path} is a folder: name the policy file" + (f", as in {names}." if names else ".")
