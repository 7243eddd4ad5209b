"""Whether two calls with `--join` mean the same job. Pure."""

from dataclasses import fields
from typing import Any

from elasticd.errors import Refused
from elasticd.records.job import JobSpec

__all__ = ["check_same", "ignored_flags"]

SAME = ("entry_kind", "entry", "args", "workers_per_node", "min_nodes", "max_nodes")
"""The fields that must be equal, beside the URL of checkpoints: otherwise hosts would train
different things."""
OWN = (
    *("name", "uid", "cwd", "run_folder", "is_local", "failure_timeout_s", "unknown", "url"),
    *("submitted_by", "submitted_at_unix_s", "owner"),
)
"""The fields that each host has for itself, or that follow from other fields."""
PARTS = ("limits", "checkpoint")
FLAGS = {
    "log_max_bytes": "log-max",
    "user_error": "max-restarts",
    "node_loss": "max-node-losses",
    "options": "storage-options",
    "every": "checkpoint-every",
    "upload_every": "checkpoint-upload-every",
    "mirror_bytes_per_s": "mirror-bandwidth",
    "keep_last": "checkpoint-keep",
    "keep_every_steps": "checkpoint-keep-every",
    "copy": "checkpoint-copy",
    "timeout_s": "checkpoint-timeout",
}


def ignored_flags(standing: JobSpec, wanted: JobSpec) -> tuple[str, ...]:
    """Return the flags that differ from those of the call that began the job; they are ignored."""
    names = [
        *_differences(standing, wanted),
        *_differences(standing.limits, wanted.limits),
        *_differences(standing.checkpoint, wanted.checkpoint),
    ]
    return tuple(
        f"--{FLAGS.get(name, name.removesuffix('_s').replace('_', '-'))}" for name in names
    )


def _differences(mine: Any, theirs: Any) -> list[str]:
    if mine is None or theirs is None:
        return []
    return [
        field.name
        for field in fields(mine)
        if field.name not in (*SAME, *OWN, *PARTS)
        and getattr(mine, field.name) != getattr(theirs, field.name)
    ]


def check_same(standing: JobSpec, wanted: JobSpec) -> None:
    """Check that both calls mean the same training.

    Raises: Refused: the program, the sizes or the checkpoints differ, or the job is not run by
        `--join`.
    """
    other = [name for name in SAME if getattr(standing, name) != getattr(wanted, name)]
    shown = "; ".join(
        f"{name} is {getattr(standing, name)!r}, not {getattr(wanted, name)!r}" for name in other
    )
    urls = [spec.checkpoint.url if spec.checkpoint else "" for spec in (standing, wanted)]
    if urls[0] != urls[1]:
        shown += f"{'; ' * bool(shown)}checkpoint is {urls[0]!r}, not {urls[1]!r}"
    if shown:
        raise Refused(
            f"The job {wanted.name!r} that runs is another one ({shown}): call all hosts alike, "
            "or choose another --job."
        )
    if not standing.is_local:
        raise Refused(
            f"The job {wanted.name!r} was submitted to the daemons, without --join: follow it "
            "without --join, or choose another --job."
        )
