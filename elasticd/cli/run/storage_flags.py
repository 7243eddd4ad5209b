"""The flags of `elasticd run` about storage: of checkpoints, and of event files."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from elasticd.checkpoint.storage.location import checked_options, checked_url, resolved
from elasticd.cli import parse_value
from elasticd.errors import CallError, EnvironmentProblem
from elasticd.records.checkpoint import (
    CheckpointSpec,
    read_bandwidth,
    read_every,
    read_upload_every,
)
from elasticd.records.tensorboard import TensorBoardSpec
from elasticd.tensorboard.event_file import usable_folder

__all__ = ["check_event_folder", "checkpoint_of", "owner_of", "tensorboard_of"]

_DRIVERS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs",
            "abfss": "adlfs", "az": "adlfs"}  # fmt: skip

_OTHERS = (
    "checkpoint_every",
    "checkpoint_upload_every",
    "mirror_bandwidth",
    "storage_options",
    "checkpoint_keep",
    "checkpoint_keep_every",
    "checkpoint_copy",
    "checkpoint_timeout",
)


def checkpoint_of(values: Mapping[str, Any], owner: str) -> CheckpointSpec | None:
    """Read `--checkpoint` and the flags that belong to it; return None without checkpoints.

    Raises: CallError: a flag is wrong; the message names it and says what to write instead.
    """
    url = values["checkpoint"]
    if not url:
        own = [n for n in _OTHERS if n != "storage_options" or not values.get("tensorboard")]
        given = [name for name in own if values[name] is not None]
        if given:
            flag = f"--{given[0].replace('_', '-')}"
            raise CallError(f"{flag} says how to save, and not where: add --checkpoint URL.")
        return None
    copy = values["checkpoint_copy"] or "auto"
    if copy not in ("auto", "blocking", "overlapped"):
        raise CallError(f"--checkpoint-copy {copy} is none of auto, blocking, overlapped.")
    place = checked_url(url)
    options = checked_options(values["storage_options"] or "")
    if _is_folder(place) and values.get("tensorboard"):
        other = checked_url(values["tensorboard"], flag="--tensorboard")
        options = options if _is_folder(other) else {}
    every = read_every("--checkpoint-every", values["checkpoint_every"])
    return CheckpointSpec(
        url=place,
        owner=owner,
        options=options,
        every=every,
        upload_every=read_upload_every(
            "--checkpoint-upload-every", values["checkpoint_upload_every"], every
        ),
        mirror_bytes_per_s=read_bandwidth("--mirror-bandwidth", values["mirror_bandwidth"]),
        keep_last=parse_value.whole("--checkpoint-keep", values["checkpoint_keep"], 3, least=0),
        keep_every_steps=parse_value.whole(
            "--checkpoint-keep-every", values["checkpoint_keep_every"], 0, least=0
        ),
        copy=copy,
        timeout_s=parse_value.seconds("--checkpoint-timeout", values["checkpoint_timeout"], 120.0),
    )


def tensorboard_of(values: Mapping[str, Any], owner: str) -> TensorBoardSpec | None:
    """Read `--tensorboard`; return None without event files.

    A folder takes no `--storage-options`. If there are two URLs of different kinds, the options
    belong to the URL of the checkpoints.

    Raises: CallError: the URL cannot be used; the message says what to write instead.
    """
    if not values.get("tensorboard"):
        return None
    url = checked_url(values["tensorboard"], flag="--tensorboard")
    options = checked_options(values["storage_options"] or "")
    if values["checkpoint"]:
        other = checked_url(values["checkpoint"])
        is_other = not _is_folder(other) and _kind(other) != _kind(url)
        options = {} if _is_folder(url) or is_other else options
    elif options and _is_folder(url):
        raise CallError("--storage-options: a folder takes none, and --tensorboard names one.")
    return TensorBoardSpec(url=url, folder=usable_folder(owner), options=options)


def check_event_folder(spec: TensorBoardSpec | None) -> None:
    """Check that this machine can write event files, without a request to any service.

    Raises: CallError, EnvironmentProblem: this machine cannot; the message says why.
    """
    if spec is None:
        return
    if not _is_folder(spec.url):
        resolved(spec.options, os.environ)
        package = _DRIVERS.get(_kind(spec.url))
        if package is not None and find_spec(package) is None:
            raise EnvironmentProblem(
                f"--tensorboard {spec.url} needs {package}, which is not installed: "
                f"pip install {package}."
            )
        return
    folder = Path(spec.url.removeprefix("file://"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as exc:
        raise CallError(
            f"The folder of event files {folder} cannot be written ({exc.strerror}): choose "
            "another --tensorboard."
        ) from exc


def _kind(url: str) -> str:
    return url.partition("://")[0]


def _is_folder(url: str) -> bool:
    return _kind(url) == "file"


def owner_of(job: str | None, entry: str) -> str:
    """Return the owner's name in checkpoints: a run that is repeated under another automatic name
    has the same owner.
    """
    return job or Path(entry).name
