"""`elasticd checkpoint ls | show | verify`: the checkpoints, their contents, and any damage."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from elasticd.checkpoint.commit.committer import read_manifest
from elasticd.checkpoint.commit.fetch import verify as damages
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.commit.read_lease import reading
from elasticd.checkpoint.format.entry import LogEntry
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.manifest import Header, Tensor
from elasticd.checkpoint.format.skeleton import plain, values
from elasticd.checkpoint.storage.bucket import Bucket, ReadableBucket
from elasticd.cli.checkpoints import words
from elasticd.cli.checkpoints.bucket import CheckpointSite, open_site, site_options
from elasticd.cli.main import complain
from elasticd.cli.parse_value import at_least
from elasticd.cli.terminal.table import show_table
from elasticd.errors import CallError

__all__ = ["ls", "show", "verify"]

SHOWN = 20
THREADS = 8

_json_option = click.option(
    "--json", "is_json", is_flag=True, help="Print one JSON document, for programs."
)


@click.command()
@site_options
@_json_option
def ls(is_json: bool, **given: Any) -> int:
    """List the checkpoints, newest first."""
    site = open_site(given)
    entries = site.checkpoints()
    with ThreadPoolExecutor(THREADS) as pool:
        headers = pool.map(lambda entry: _header(site.bucket, entry), entries)
        found = [
            (entry, header)
            for entry, header in zip(entries, headers, strict=True)
            if isinstance(header, Header) or not _is_given_up(site.bucket, entry)
        ]
    if is_json:
        click.echo(json.dumps([_row(*each) for each in found]))
    elif found:
        now_unix_s = time.time()
        show_table(
            ("NUMBER", "STEP", "GENERATION", "RUN", "SIZE", "AGE", "WORLD SIZE"),
            [
                (
                    str(entry.number),
                    str(entry.snapshot.step),
                    str(entry.snapshot.generation),
                    str(entry.snapshot.run),
                    words.size(entry.nbytes),
                    words.age(now_unix_s - entry.at_unix_s),
                    str(header.world_size) if isinstance(header, Header) else "damaged",
                )
                for entry, header in found
            ],
        )
    _tell_unreadable(site, entries)
    return 0


@click.command()
@site_options
@click.argument("number", type=at_least(1), required=False)
@click.option("--step", type=at_least(0), help="Take the checkpoint of this step.")
@click.option(
    "--all", "is_all", is_flag=True, help=f"Show all tensors and values, not only {SHOWN}."
)
@_json_option
def show(number: int | None, step: int | None, is_all: bool, is_json: bool, **given: Any) -> int:
    """Show what is in the checkpoint NUMBER, or in the newest."""
    if number is not None and step is not None:
        raise CallError("NUMBER and --step are two names of one thing: give one of them.")
    site = open_site(given)
    entry = site.pick(number, step)
    manifest = read_manifest(site.bucket, entry)
    header = manifest.header
    if is_json:
        document = {
            **words.entry_plain(entry),
            "header": words.header_plain(header),
            "parts": len(manifest.parts),
            "tensors": [_tensor_plain(each) for each in header.tensors],
            "state": plain(header.skeleton, [each.name for each in header.tensors]),
        }
        click.echo(json.dumps(document))
        return 0
    for line in words.header_lines(entry, manifest, words.when(entry.at_unix_s, time.time())):
        click.echo(line)
    _show_tensors(header, is_all)
    _show_values(values(header.skeleton), is_all)
    return 0


@click.command()
@site_options
@click.argument("number", type=at_least(1), required=False)
@click.option("--all", "is_all", is_flag=True, help="Check all checkpoints, not only the newest.")
def verify(number: int | None, is_all: bool, **given: Any) -> int:
    """Read every byte of the checkpoint NUMBER, the newest, or all; exit 1 if one is damaged."""
    if number is not None and is_all:
        raise CallError("NUMBER is one checkpoint and --all is every one: give one of them.")
    site = open_site(given)
    entries = site.checkpoints() if is_all else [site.pick(number)]
    if is_all:
        is_damaged = _tell_unreadable(site, entries)
    else:
        is_damaged = number is None and bool(site.log.passed_over(entries[0].number))
    with ThreadPoolExecutor(THREADS) as pool:
        for entry in entries:
            is_damaged |= not _is_good(site.bucket, entry, pool, is_all=is_all)
    return 1 if is_damaged else 0


def _header(bucket: ReadableBucket, entry: LogEntry) -> Header | str:
    """Return the checkpoint's header, or a sentence that says why it cannot be read."""
    try:
        return read_manifest(bucket, entry).header
    except Damaged as exc:
        return str(exc)


def _row(entry: LogEntry, header: Header | str) -> dict[str, Any]:
    is_good = isinstance(header, Header)
    return {
        **words.entry_plain(entry),
        "world_size": header.world_size if isinstance(header, Header) else None,
        "damage": "" if is_good else header,
    }


def _tell_unreadable(site: CheckpointSite, entries: Sequence[LogEntry]) -> bool:
    """Print the damaged entries of the log that belong to kept or newer checkpoints.

    Return whether there are damaged entries.
    """
    known = {entry.number for entry in entries}
    kept = site.log.kept()
    is_lost = site.tell_passed_over(kept[-1] if kept else 0)
    for number in kept:
        if number in known:
            continue
        try:
            site.log.entry(number)
        except Damaged as exc:
            is_lost = True
            complain(f"checkpoint {number}: damaged: its entry in the log cannot be read: {exc}")
    return is_lost


def _tensor_plain(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "nbytes": tensor.nbytes,
    }


def _show_tensors(header: Header, is_all: bool) -> None:
    tensors = header.tensors
    shown = tensors if is_all else tensors[:SHOWN]
    click.echo(f"\n{len(tensors)} tensor{'s' if len(tensors) != 1 else ''}")
    show_table(
        ("NAME", "DTYPE", "SHAPE", "SIZE"),
        [
            (words.shown(each.name), each.dtype, str(list(each.shape)), words.size(each.nbytes))
            for each in shown
        ],
    )
    for line in words.more_line(shown, tensors, "tensor"):
        click.echo(line)


def _show_values(found: Sequence[tuple[str, Any]], is_all: bool) -> None:
    shown = found if is_all else found[:SHOWN]
    if shown:
        click.echo(f"\n{len(found)} plain value{'s' if len(found) != 1 else ''}")
        show_table(
            ("NAME", "VALUE"), [(words.shown(name), words.value(each)) for name, each in shown]
        )
    for line in words.more_line(shown, found, "value"):
        click.echo(line)


def _is_given_up(bucket: Bucket, entry: LogEntry) -> bool:
    """Return whether a job or a person has removed a checkpoint since this command looked."""
    return entry.number not in CommitLog(bucket).kept()


def _is_good(bucket: Bucket, entry: LogEntry, pool: ThreadPoolExecutor, *, is_all: bool) -> bool:
    """Print one line about a checkpoint, more lines if it is damaged; return whether it is good.

    Of all checkpoints, one that is removed meanwhile is not damaged: there is nothing to verify.
    """
    begun_s = time.monotonic()
    try:
        with reading(bucket, entry.number):
            manifest = read_manifest(bucket, entry)
            found = damages(bucket, manifest, pool)
            plain(manifest.header.skeleton, [each.name for each in manifest.header.tensors])
    except Damaged as exc:
        found = [str(exc)]
    if not found:
        took = time.monotonic() - begun_s
        click.echo(
            f"{words.named(entry)}: good, {words.size(manifest.nbytes)} in "
            f"{len(manifest.parts)} part{'s' if len(manifest.parts) != 1 else ''}, {took:.1f} s"
        )
        return True
    if _is_given_up(bucket, entry):
        click.echo(f"{words.named(entry)}: given up meanwhile, so it was not verified")
        return is_all
    for said in found:
        click.echo(f"{words.named(entry)}: damaged: {said}")
    return False
