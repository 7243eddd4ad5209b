"""`elasticd checkpoint rm | sweep`: the commands that delete. Each has `--dry-run`."""

from typing import Any

import click

from elasticd.checkpoint.retention.deletion import apply_retention, remove
from elasticd.checkpoint.retention.policy import ALWAYS, Retention
from elasticd.checkpoint.retention.sweep import LEAST_AGE_S
from elasticd.checkpoint.retention.sweep import sweep as swept
from elasticd.cli.checkpoints import words
from elasticd.cli.checkpoints.bucket import open_site, site_options
from elasticd.cli.parse_value import at_least
from elasticd.errors import CallError, NotFound

__all__ = ["rm", "sweep"]

_dry_run_option = click.option(
    "--dry-run", "is_dry_run", is_flag=True, help="Say what would be done, and change nothing."
)


@click.command()
@site_options
@click.argument("numbers", metavar="[NUMBER]...", nargs=-1, type=at_least(1))
@click.option("--keep-last", type=at_least(1), metavar="N", help="Keep the newest N.")
@click.option(
    "--keep-every",
    type=at_least(1),
    metavar="STEPS",
    help="With --keep-last: also keep the first checkpoint of each STEPS steps.",
)
@click.option(
    "--force",
    "is_forced",
    is_flag=True,
    help=f"Remove even the newest {ALWAYS} complete checkpoints.",
)
@_dry_run_option
def rm(
    numbers: tuple[int, ...],
    keep_last: int | None,
    keep_every: int | None,
    is_forced: bool,
    is_dry_run: bool,
    **given: Any,
) -> int:
    """Remove the checkpoints NUMBER..., or all but the newest; never one that is being read."""
    if bool(numbers) == (keep_last is not None):
        raise CallError("Say which to remove: either NUMBER..., or --keep-last N.")
    if keep_every is not None and keep_last is None:
        raise CallError("--keep-every says what stays besides the newest: give --keep-last too.")
    if keep_last is not None and keep_last < ALWAYS and not is_forced:
        raise CallError(
            f"--keep-last {keep_last}: the newest {ALWAYS} whole ones stay in case one of them "
            f"cannot be read; give --keep-last {ALWAYS}, or --force."
        )
    site = open_site(given)
    site.checkpoints()  # Raises NotFound if there are no checkpoints.
    if keep_last is None:
        removal = remove(site.bucket, site.log, numbers, is_forced=is_forced, is_dry_run=is_dry_run)
    else:
        policy = Retention(last=keep_last, every_steps=keep_every or 0)
        removal = apply_retention(
            site.bucket,
            site.log,
            policy,
            least=min(ALWAYS, keep_last),
            is_dry_run=is_dry_run,
        )
    for line in words.removal_lines(removal, is_dry_run=is_dry_run):
        click.echo(line)
    return 0


@click.command()
@site_options
@click.option(
    "--older-than",
    metavar="TIME",
    default="24h",
    show_default=True,
    help="Delete only what is older than this: 90m, 24h, 7d.",
)
@_dry_run_option
def sweep(older_than: str, is_dry_run: bool, **given: Any) -> int:
    """Delete what crashes left behind: uploads that can no longer become checkpoints."""
    older_than_s = words.age_limit("--older-than", older_than, least_s=LEAST_AGE_S)
    site = open_site(given)
    if not site.log.newest_number():
        raise NotFound(f"There is no checkpoint at {site.bucket.url}.")
    found = swept(site.bucket, site.log, older_than_s=older_than_s, is_dry_run=is_dry_run)
    for line in words.sweep_lines(found, is_dry_run=is_dry_run):
        click.echo(line)
    return 0
