"""Keeps the records of a private etcd as one file, so that `why` works after etcd is gone."""

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from elasticd.errors import EnvironmentProblem, NotSupported, Unavailable
from elasticd.records.compression import compressed, decompressed
from elasticd.records.ids import JobName
from elasticd.records.keys import Keys
from elasticd.store.api import KeyValue, Put, ReadableStore, Store, Txn

__all__ = ["archive", "archive_text", "last_records", "load", "records_of"]

SCHEMA = 1
LAST_TRIES = 2
"""The number of tries of reading: etcd may end between two reads; after a second end nothing is
read."""
ITEMS_PER_TXN = 100
"""etcd takes 128 operations in a transaction; the in-memory store keeps that limit."""


def records_of(store: ReadableStore, keys: Keys, job: JobName) -> dict[str, KeyValue]:
    """Return all records about one job, and the nodes."""
    items = [*store.list(keys.job(job)).items, *store.list(keys.nodes).items]
    return {item.key: item for item in items}


def last_records(
    store: ReadableStore, keys: Keys, job: JobName, revive: Callable[[], None]
) -> dict[str, KeyValue] | None:
    """Return all records about a job and the nodes at the end of a run, even if etcd has ended.

    `revive` starts etcd again if it has ended; etcd may also end during the reading. The result is
    None if etcd cannot be read.
    """
    for _ in range(LAST_TRIES):
        try:
            revive()
            return records_of(store, keys, job)
        except (EnvironmentProblem, Unavailable):
            continue
    return None


def archive(items: Iterable[KeyValue], path: Path) -> None:
    """Write records to a file; after an error or a loss of power the old file stays as it was.

    Raises:
        OSError: the file cannot be written.
    """
    text = archive_text(items)
    partial = path.with_suffix(".partial")
    try:
        # The file holds the values of --env, so only its owner may read it.
        with open(partial, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # Else the name may be on the disk before what it names.
        partial.rename(path)
    except OSError:
        with suppress(OSError):
            partial.unlink()  # A full disk needs the room, and nobody else knows the file.
        raise


def archive_text(items: Iterable[KeyValue]) -> str:
    """Return the text of an archive file."""
    records = {item.key: json.loads(decompressed(item.value, item.key)) for item in items}
    return json.dumps({"schema": SCHEMA, "records": records}, indent=1)


def load(path: Path, store: Store) -> None:
    """Put the records of a file into an empty store.

    Raises:
        NotSupported: the file is no archive, is of a newer version, has a malformed record, or
            cannot be read by this user.
    """
    try:
        plain = json.loads(path.read_text())
        schema, records = plain["schema"], plain["records"]
        texts = [(key, json.dumps(value).encode()) for key, value in records.items()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise NotSupported(f"{path} is not a file of elasticd's records.") from exc
    except OSError as exc:
        raise NotSupported(f"{path} cannot be read ({exc.strerror}): see who owns it.") from exc
    if schema != SCHEMA:
        raise NotSupported(f"{path} has schema {schema}, this elasticd knows {SCHEMA}: upgrade it.")
    puts = [Put(key=key, value=compressed(text, key)) for key, text in texts]
    for begin in range(0, len(puts), ITEMS_PER_TXN):
        store.commit(Txn(then=tuple(puts[begin : begin + ITEMS_PER_TXN])))
