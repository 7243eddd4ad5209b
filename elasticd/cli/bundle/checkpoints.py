"""The list of a job's checkpoints, for a bundle."""

from collections.abc import Mapping
from pathlib import Path

from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.storage.location import open_bucket
from elasticd.checkpoint.storage.retry import RetryPolicy
from elasticd.cli.checkpoints.words import entry_plain
from elasticd.errors import NotFound
from elasticd.records.checkpoint import CheckpointSpec

__all__ = ["checkpoints_plain"]

PATIENCE = RetryPolicy(limit_s=10.0)


def checkpoints_plain(spec: CheckpointSpec, environ: Mapping[str, str]) -> Mapping[str, object]:
    """Return the checkpoints, newest first, and the damaged entries, for JSON.

    Raises:
        NotFound: the URL is a folder that this machine does not have.
        CallError, Unavailable: this machine cannot open or read the storage.
    """
    folder = spec.url.removeprefix("file://")
    if folder != spec.url and not Path(folder).is_dir():
        raise NotFound(f"This machine has no folder {folder}.")
    log = CommitLog(open_bucket(spec.url, spec.options, environ, policy=PATIENCE))
    found = [entry_plain(entry) for entry in log.checkpoints()]
    return {"url": spec.url, "checkpoints": found, "damaged": log.passed_over(0)}
