"""What the flags about checkpoints ask for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elasticd.checkpoint.location import checked_options, checked_url
from elasticd.cli import number
from elasticd.errors import CallError
from elasticd.records.checkpoint import CheckpointSpec, read_every

__all__ = ["checkpoint_of", "owner_of"]

_OTHERS = (
    "checkpoint_every",
    "storage_options",
    "checkpoint_keep",
    "checkpoint_keep_every",
    "checkpoint_copy",
    "checkpoint_timeout",
)


def checkpoint_of(values: Mapping[str, Any], owner: str) -> CheckpointSpec | None:
    """Read `--checkpoint` and the flags that belong to it; None: no checkpoints.

    Raises:
        CallError: says which flag, and what to write instead.
    """
    url = values["checkpoint"]
    if not url:
        given = [name for name in _OTHERS if values[name] is not None]
        if given:
            flag = f"--{given[0].replace('_', '-')}"
            raise CallError(f"{flag} says how to save, and not where: add --checkpoint URL.")
        return None
    copy = values["checkpoint_copy"] or "auto"
    if copy not in ("auto", "blocking", "overlapped"):
        raise CallError(f"--checkpoint-copy {copy} is none of auto, blocking, overlapped.")
    return CheckpointSpec(
        url=checked_url(url),
        owner=owner,
        options=checked_options(values["storage_options"] or ""),
        every=read_every("--checkpoint-every", values["checkpoint_every"]),
        keep_last=number.whole("--checkpoint-keep", values["checkpoint_keep"], 3, least=0),
        keep_every_steps=number.whole(
            "--checkpoint-keep-every", values["checkpoint_keep_every"], 0, least=0
        ),
        copy=copy,
        timeout_s=number.seconds("--checkpoint-timeout", values["checkpoint_timeout"], 120.0),
    )


def owner_of(job: str | None, entry: str) -> str:
    """Whose checkpoints they are when a run is repeated under another automatic name."""
    return job or Path(entry).name
