"""The URL and options of `elasticd checkpoint`, and the checkpoint that a call means."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.format.entry import LogEntry
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.location import checked_options, checked_url, open_bucket
from elasticd.checkpoint.storage.retry import RetryPolicy
from elasticd.cli.main import complain
from elasticd.errors import NotFound

__all__ = ["CheckpointSite", "open_site", "site_options"]

F = TypeVar("F", bound=Callable[..., Any])

PATIENCE = RetryPolicy(limit_s=20.0)
"""Requests are retried for a shorter time than in a job: a person waits for the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSite:
    bucket: Bucket
    log: CommitLog

    def checkpoints(self) -> list[LogEntry]:
        """Return the kept checkpoints, newest first.

        Raises:
            NotFound: there are no checkpoints.
        """
        found = list(self.log.checkpoints())
        if not found and not self.log.kept():
            damaged = self.log.passed_over(0)
            if damaged:
                raise NotFound(
                    f"There is no readable checkpoint at {self.bucket.url}: {damaged[0]}"
                )
            raise NotFound(f"There is no checkpoint at {self.bucket.url}.")
        return found

    def pick(self, number: int | None, step: int | None = None) -> LogEntry:
        """Return the checkpoint with this number or step; the newest if neither is given.

        Raises: NotFound: there is no such checkpoint. Damaged: its entry cannot be read.
        """
        found = self.checkpoints()
        for entry in found:
            if step is not None and entry.snapshot.step != step:
                continue
            if number in (None, entry.number):
                if number is None and step is None:
                    self.tell_passed_over(entry.number)
                return entry
        if number is not None and number in self.log.kept():
            self.log.entry(number)  # The entry is damaged, so this raises.
        said = f"checkpoint {number}" if number is not None else f"checkpoint of step {step}"
        if number is None and step is None:
            said = "readable checkpoint"
        raise NotFound(f"There is no {said} at {self.bucket.url}{_others(found, step)}.")

    def tell_passed_over(self, above: int) -> bool:
        """Name the damaged entries of the log above this number, any of which may be a newer
        checkpoint; return whether there are any.
        """
        sentences = self.log.passed_over(above)
        for each in sentences:
            complain(each)
        return bool(sentences)


def site_options(command: F) -> F:
    """Add the argument URL and the flag --storage-options."""
    command = click.option(
        "--storage-options",
        "--storage_options",
        metavar="JSON",
        envvar="ELASTICD_STORAGE_OPTIONS",
        default="",
        help="Options of the URL's fsspec file system; a secret as env:NAME or file:PATH.",
    )(command)
    return click.argument("url")(command)


def open_site(values: Mapping[str, Any]) -> CheckpointSite:
    """Open the storage of URL and --storage-options; this connects to nothing yet.

    Raises:
        CallError: URL or --storage-options are malformed.
        EnvironmentProblem: this machine lacks a package or a file for them.
    """
    url = checked_url(values["url"], flag="URL")
    options = checked_options(values["storage_options"])
    bucket = open_bucket(url, options, os.environ, policy=PATIENCE)
    return CheckpointSite(bucket=bucket, log=CommitLog(bucket))


def _others(found: Iterable[LogEntry], step: int | None) -> str:
    some = [each.number if step is None else each.snapshot.step for each in found][:10]
    if not some:
        return ""
    return f": the newest {'numbers' if step is None else 'steps'} are {', '.join(map(str, some))}"
