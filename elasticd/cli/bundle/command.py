"""`elasticd bundle`: pack what a colleague needs to find out why a job went wrong."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from elasticd.bundle.destination import Destination, check_writable, destination_of, write
from elasticd.bundle.mask import Mask
from elasticd.bundle.secret import secrets_of_environ, secrets_of_options
from elasticd.checkpoint.storage.location import checked_options
from elasticd.cli.bundle.pack import Packed, pack
from elasticd.cli.etcd_flags import Values, log_dir_of
from elasticd.cli.jobs.options import json_options
from elasticd.cli.record_source import RecordSource, job_source
from elasticd.cli.terminal.words import counted, size_of
from elasticd.errors import ElasticdError, Unavailable
from elasticd.records.ids import JobName

__all__ = ["bundle", "bundle_lines", "bundle_plain", "check_place", "make"]

SHOWN = 20
"""How many lines about missing files are printed; the bundle has all of them."""
WARNING = (
    "Values of --env, of storage options and of variables that are named as secrets are masked. "
    "Another secret that the script printed cannot be known: look before you pass it on."
)


@click.command()
@click.argument("job", required=False)
@click.option(
    "--to",
    metavar="URL",
    default=".",
    help="Folder or file (.tar.gz) to write: a path, or s3://BUCKET/FOLDER.  [this folder]",
)
@click.option(
    "--storage-options",
    "--storage_options",
    metavar="JSON",
    default="",
    help="Options of that URL's fsspec file system; a secret as env:NAME or file:PATH.",
)
@json_options
def bundle(job: str | None, to: str, storage_options: str, is_json: bool, **values: Any) -> int:
    """Pack into one file what a colleague needs to find out why a job went wrong.

    Status, changes with tracebacks and stacks, the time account, the ends of the workers' output,
    logs of agents and keepers, metrics, versions; at most 50 MB. Without JOB it packs the newest
    local run. It names what it could not get, in the file and here. Values of variables and options
    are masked.
    """
    place = destination_of(to, "--to")
    options = checked_options(storage_options)
    check_place(place, "--to", options, os.environ)
    with _records(values, job) as (source, name):
        done, packed = make(source, name, place, options, os.environ)
    if is_json:
        click.echo(json.dumps(bundle_plain(done, packed), indent=2))
    else:
        for line in (*bundle_lines(done, packed), WARNING):
            click.echo(line)
    return 0


@contextmanager
def _records(values: Values, job: str | None) -> Iterator[tuple[RecordSource, JobName]]:
    """Open the job's records.

    Raises: Unavailable: etcd is away; the message says why that is the end, and what there is.
    """
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(job_source(values, job))
        except Unavailable as exc:
            raise Unavailable(f"{exc} {_without_records(values, job)}") from exc
        yield opened


def _without_records(values: Values, job: str | None) -> str:
    """Say why nothing is packed without records, and where this host's files of the job are."""
    # The spec has the values of --env and of storage options, which the script may have printed.
    why = "No bundle is made: the job's record says which values are secrets to be masked"
    folder = Path(log_dir_of(values, os.environ) or "elasticd-runs").absolute() / (job or "")
    if job is not None and folder.is_dir():
        return f"{why}. What its workers and agents wrote on this host is in {folder}, unmasked."
    return f"{why}. What its workers and agents wrote is in the run folder of each node, unmasked."


def check_place(
    place: Destination, flag: str, options: Mapping[str, Any], environ: Mapping[str, str]
) -> None:
    """Check that a bundle can be written to this place.

    Raises:
        CallError, Unavailable: the place cannot be written; the message has no secret.
    """
    with _masked(options, environ):
        check_writable(place, flag, options, environ)


def make(
    source: RecordSource,
    job: JobName,
    place: Destination,
    options: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    host: str = "",
) -> tuple[Destination, Packed]:
    """Pack a job and write the bundle.

    A place without a file name gets one, which contains `host`.

    Raises:
        NotFound: there is no such job.
        CallError, Unavailable: the bundle cannot be written; the message has no secret.
    """
    when = time.strftime("%Y%m%d-%H%M%S") + (f"-{host}" if host else "")
    done = place.named(f"elasticd-bundle-{job}-{when}.tar.gz")
    top = done.name.removesuffix(".tgz").removesuffix(".tar.gz")
    packed = pack(source, job, top=top, options=options, environ=environ)
    with _masked(options, environ):
        write(done, packed.data, options, environ)
    return done, packed


@contextmanager
def _masked(options: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[None]:
    """Remove secrets from the errors that a storage raises."""
    try:
        yield
    except ElasticdError as exc:
        mask = Mask([*secrets_of_environ(environ), *secrets_of_options(options, environ)])
        raise type(exc)(mask.text(str(exc))) from exc


def bundle_lines(done: Destination, packed: Packed) -> list[str]:
    """Return sentences that say where the bundle is, and which files are missing in it."""
    size = size_of(len(packed.data))
    lines = [f"Wrote {done.url} ({size}, {counted(packed.files, 'file')})."]
    if packed.missing:
        lines.append("Not in it:")
        lines += [f"  {each.sentence}" for each in packed.missing[:SHOWN]]
        if len(packed.missing) > SHOWN:
            lines.append(f"  and {len(packed.missing) - SHOWN} more: its MISSING.txt has them all")
    return lines


def bundle_plain(done: Destination, packed: Packed) -> Mapping[str, object]:
    """Return the bundle's place and its missing files for programs."""
    return {
        "url": done.url,
        "bytes": len(packed.data),
        "files": packed.files,
        "missing": [{"what": each.what, "why": each.why} for each in packed.missing],
    }
