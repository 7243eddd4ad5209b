"""A checkpoint's URL and options as a user gives them; they may contain no secret.

What a job asks for is written to etcd and shown by `status`, and every user of a machine sees its
command lines. So a secret is named (`env:NAME`, `file:PATH`), never given.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fsspec.registry import known_implementations

from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.checkpoint.storage.retry import RetryingBucket, RetryPolicy
from elasticd.checkpoint.storage.storage_probe import ProbedBucket
from elasticd.errors import CallError

if TYPE_CHECKING:
    from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket

__all__ = [
    "MOST_PATH_BYTES",
    "checked_options",
    "checked_url",
    "open_bucket",
    "open_once",
    "open_unprobed",
    "resolved",
]

_SECRET = ("secret", "password", "passwd", "token", "sas", "credential", "connection_string",
           "account_key", "access_key", "private_key")  # fmt: skip
_EXACTLY_SECRET = {"key", "auth"}
_IN_URL = re.compile(r"://[^/@]*:[^/@]*@")
"""A user and a password in a URL, as in http://user:password@proxy."""
MOST_NAME = 255
"""The characters of a folder's name: Linux takes as many bytes, some mounted file systems more."""
MOST_PATH_BYTES = 4_000
"""What Linux's limit of 4096 leaves beside the names of a checkpoint's objects."""
_ONE_COLON = re.compile(r"(file|local|s3a?|gc?s|abfss?|az|https?):(?!//)/?(.*)", re.IGNORECASE)
"""A URL of which the slashes were forgotten, in whole or in part, or lost in a `Path`."""


def checked_url(url: str, here: str = "", *, flag: str = "--checkpoint") -> str:
    """Return the URL in full; a plain path is one below `here`. `flag` is the flag that gave it.

    Raises: CallError: the text is no URL of a known kind, names storage that ends with its process,
        has a name that is too long, or holds credentials.
    """
    if not url or "\0" in url:
        is_plain = flag in ("--checkpoint", "URL")
        what = "The URL of the checkpoints" if is_plain else f"The URL of {flag}"
        raise CallError(f"{what} names nothing: give a folder, or s3://BUCKET/FOLDER.")
    _check_slashes(url, here, flag)
    _check_home(url, here, flag)
    if "://" not in url:
        return _folder_url(os.path.join(here or os.getcwd(), url), flag)
    protocol, _, rest = url.partition("://")
    if protocol == "local":
        protocol = "file"  # fsspec's driver for it does not write whole or not at all; ours does.
    if protocol not in known_implementations:
        raise CallError(
            f"{flag} {protocol}:// is no kind of storage that fsspec knows: take file://, "
            "s3://, gs:// or abfs://."
        )
    if protocol == "memory":  # fsspec's takes every write, and is gone with its process.
        raise CallError(
            f"{flag} {url} is the memory of one process, gone when that ends: give a folder, "
            "or s3://BUCKET/FOLDER."
        )
    if protocol == "file":
        if not rest.startswith("/"):
            raise CallError(f"{flag} {url}: a file URL has three slashes, file:///{rest}.")
        return _folder_url(rest, flag)
    if not rest.split("/")[0]:
        raise CallError(f"{flag} {url} names no bucket: give {protocol}://BUCKET/FOLDER.")
    try:
        parts = urlsplit(url)
    except ValueError as exc:
        raise CallError(f"{flag} {url} is no URL ({exc}).") from exc
    # abfs://CONTAINER@ACCOUNT is a place; a user with a password is not.
    is_user = parts.username and protocol not in ("abfs", "abfss", "az")
    if parts.password or parts.query or is_user:
        raise CallError(
            f"{flag}: leave credentials and parameters out of the URL, which everybody can "
            "see; put them into the environment of the nodes, or name them in --storage-options."
        )
    return url.rstrip("/")


def checked_options(text: str) -> dict[str, Any]:
    """Read `--storage-options`, a JSON object for the file system.

    Raises: CallError: the text is no such object, or contains a secret instead of the secret's
        name.
    """
    if not text:
        return {}
    try:
        options = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise CallError(
            f"--storage-options is no JSON ({exc}): write it as in "
            '\'{"endpoint_url": "http://host:9000"}\'.'
        ) from exc
    if not isinstance(options, dict):
        raise CallError("--storage-options is no JSON object: write '{\"NAME\": VALUE}'.")
    _refuse_secrets(options)
    return options


def resolved(options: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the options with the values for which `env:NAME` and `file:PATH` stand.

    Raises:
        CallError: there is no such variable or file here.
    """
    return {name: _resolved(name, value, environ) for name, value in options.items()}


def open_bucket(
    url: str,
    options: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    policy: RetryPolicy | None = None,
) -> Bucket:
    """Return the bucket of a checked URL, with retries by the policy.

    `environ` is where a value `env:NAME` of the options is looked up.

    Raises: CallError, EnvironmentProblem: what is missing here to use it.
    """
    return RetryingBucket(open_once(url, options, environ), policy or RetryPolicy())


def open_once(url: str, options: Mapping[str, Any], environ: Mapping[str, str]) -> Bucket:
    """Return the bucket of a checked URL without retries; it connects to nothing yet.

    Raises: CallError, EnvironmentProblem: what is missing here to use it.
    """
    inner = _opened(url, options, environ)
    return inner if isinstance(inner, FolderBucket) else ProbedBucket(inner)


def open_unprobed(url: str, options: Mapping[str, Any], environ: Mapping[str, str]) -> Bucket:
    """Return the bucket, with retries and no probe, for small objects that only one process writes.

    Raises: CallError, EnvironmentProblem: what is missing here to use it.
    """
    inner = _opened(url, options, environ)
    if not isinstance(inner, FolderBucket):
        inner.send_plain()  # What a server does with chunks need not be known.
    return inner


def _opened(
    url: str, options: Mapping[str, Any], environ: Mapping[str, str]
) -> "FolderBucket | FsspecBucket":
    given = resolved(options, environ)
    if url.startswith("file://"):
        if given:
            raise CallError(
                f"--storage-options: a folder takes none, and {', '.join(given)} stands there."
            )
        return FolderBucket(url.removeprefix("file://"))
    # It costs the import of a driver.
    from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket

    return FsspecBucket(url, given)


def _folder_url(path: str, flag: str) -> str:
    """Return the URL of a folder whose objects can have names.

    Raises: CallError: a name in the path, or the whole path, is too long.
    """
    path = os.path.normpath(path)
    longest = max(map(len, path.split("/")))
    if longest > MOST_NAME:
        raise CallError(
            f"{flag} has a name of {longest} characters between two slashes, and file systems take "
            f"{MOST_NAME}: give a shorter one."
        )
    nbytes = len(path.encode(errors="surrogatepass"))
    if nbytes > MOST_PATH_BYTES:
        raise CallError(
            f"{flag} is a path of {nbytes} bytes, and the names of checkpoints leave room for "
            f"{MOST_PATH_BYTES}: give a shorter one."
        )
    return f"file://{path}"


def _check_slashes(text: str, here: str, flag: str) -> None:
    """Refuse `s3:BUCKET/FOLDER`, which would be taken for a folder of this name on this machine."""
    found = _ONE_COLON.fullmatch(text)
    if found is None:
        return
    scheme, rest = found[1].lower(), found[2]
    is_path = scheme in ("file", "local")
    meant = "the path without a scheme" if is_path else f"{scheme}://{rest}"
    folder = f"/{text}" if here == "/" else f"./{text}"
    raise CallError(
        f"{flag} {text} is no URL, because two slashes are missing after the colon: give {meant}, "
        f"or {folder} for a folder of that name."
    )


def _check_home(text: str, here: str, flag: str) -> None:
    """Refuse `~/FOLDER`, which would be taken for a folder of the name `~`."""
    path = text.removeprefix("file://")
    if path == "~" or path.startswith("~/"):
        folder = f"/{path}" if here == "/" else f"./{path}"
        raise CallError(
            f"{flag} {text} is no folder of your home, since the shell replaces ~ only where a "
            f"word begins with it: give the path in full, or {folder} for a folder of that name."
        )


def _refuse_secrets(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                _refuse_secrets(each)
            elif _is_secret(name.lower(), each):
                raise CallError(
                    f"--storage-options gives a secret in {name!r}, where everybody can read it: "
                    f'name a variable or a file of the nodes instead, as in {{"{name}": '
                    '"env:NAME"}.'
                )


def _is_secret(name: str, value: Any) -> bool:
    if isinstance(value, str) and value.startswith(("env:", "file:")):
        return False
    if isinstance(value, str) and _IN_URL.search(value):
        return True
    has_value = value is not None and not isinstance(value, bool)
    return has_value and (name in _EXACTLY_SECRET or any(word in name for word in _SECRET))


def _resolved(name: str, value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return resolved(value, environ)
    if isinstance(value, list):
        return [_resolved(name, each, environ) for each in value]
    if not isinstance(value, str):
        return value
    if value.startswith("env:"):
        found = environ.get(value[4:])
        if found is None:
            raise CallError(f"--storage-options {name}: the variable {value[4:]} is not set here.")
        return found
    if value.startswith("file:"):
        try:
            return Path(value[5:]).read_text().strip()
        except (OSError, ValueError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else "it is no text"
            raise CallError(
                f"--storage-options {name}: {value[5:]} cannot be read ({why})."
            ) from exc
    return value
