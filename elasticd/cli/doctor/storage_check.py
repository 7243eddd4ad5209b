"""Checks the storage of checkpoints: writes, conditional writes, reads, lists and deletes."""

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from elasticd.checkpoint.format.layout import probe_name
from elasticd.checkpoint.storage.bucket import Bucket, ObjectMissing
from elasticd.checkpoint.storage.location import open_once
from elasticd.checkpoint.storage.s3_put import LARGE_BYTES
from elasticd.checkpoint.storage.storage_probe import SMALL_BYTES, fault_of
from elasticd.cli.doctor.finding import Finding, Verdict
from elasticd.cli.terminal.words import seconds, size_of

__all__ = ["check_bucket", "check_storage"]


def check_storage(url: str, options: Mapping[str, Any]) -> Iterator[Finding]:
    """Test the storage as a keeper does before its first write, and then time a write and a read.

    Raises: ElasticdError: the storage does not answer, or refuses; the message says why.
    """
    folder = Path(url.removeprefix("file://")) if url.startswith("file://") else None
    missing = [each for each in (folder, *folder.parents) if not each.exists()] if folder else []
    try:
        yield from check_bucket(open_once(url, options, os.environ))
    finally:
        for each in missing:
            with suppress(OSError):  # It exists only if a write succeeded.
                each.rmdir()


def check_bucket(bucket: Bucket) -> Iterator[Finding]:
    """Test an open storage as `check_storage` does; the test objects are removed.

    Raises: ElasticdError: the storage does not answer, or refuses; the message says why.
    """
    fault = fault_of(bucket, SMALL_BYTES)
    if fault is not None:
        yield _problem(f"{bucket.url} {fault.value}")
        return
    name, data = probe_name(secrets.token_hex(8)), secrets.token_bytes(LARGE_BYTES)
    try:
        bucket.create(name, data)  # It is tried before its first large write, which takes time.
        began_s = time.monotonic()
        bucket.replace(name, data)
        written_s = time.monotonic()
        back = bytearray(len(data))
        count = bucket.read_into(name, 0, memoryview(back))
        read_s = time.monotonic()
        listed = bucket.list(name.rpartition("/")[0], 1000, lambda each: True)
    finally:
        bucket.delete([name])
    if count != len(data) or back != data:
        yield _problem(f"{bucket.url} does not give back what was written to it")
    elif all(each.name != name for each in listed):
        yield _problem(f"{bucket.url} does not list an object that was written a moment before")
    elif not _is_gone(bucket, name):
        yield _problem(f"{bucket.url} still has an object that was deleted")
    else:
        yield Finding(
            subject="storage",
            verdict=Verdict.OK,
            found=f"{bucket.url} can be written, read, listed and deleted from, and keeps two "
            f"writers apart; {size_of(len(data))} were written in {seconds(written_s - began_s)} "
            f"and read in {seconds(read_s - written_s)}",
        )


def _is_gone(bucket: Bucket, name: str) -> bool:
    try:
        bucket.read(name, 2 * LARGE_BYTES)
    except ObjectMissing:
        return True
    return False


def _problem(found: str) -> Finding:
    return Finding(
        subject="storage",
        verdict=Verdict.PROBLEM,
        found=found,
        advice="Nothing can be saved there safely: give another --checkpoint.",
    )
