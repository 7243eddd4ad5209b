"""Announces that a checkpoint is being read, so that nobody deletes it meanwhile.

A read lease is an object `leases/<token>.json` with a number and a time. A reader writes the lease
first and looks into the log after that. A process that deletes writes to the log first and looks
for leases after that. So in any order one of the two sees the other. A reader that dies leaves its
lease behind, which ends by its time. This is the one place where the clocks of two hosts meet,
therefore with an hour of grace.

A network file system that caches folders breaks this order for as long as it caches. Then two rules
are left: the newest two checkpoints stay, and a reader verifies every checksum.
"""

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import LEASES
from elasticd.checkpoint.storage.bucket import Bucket, ListedObject, ObjectMissing, ReadableBucket
from elasticd.errors import ElasticdError, EnvironmentProblem, Refused

__all__ = ["GRACE_S", "LEASE_S", "ReadLease", "is_over", "leased", "leases", "reading"]

LEASE_S = 600.0
"""How long a lease lasts. It is renewed three times within it, so that two renewals may fail."""
GRACE_S = 3600.0
"""How far the clocks of two hosts may differ."""
LEASE_LIMIT = 10_000
LEASE_LIMIT_BYTES = 1000
END_S = 5.0
"""How long a reader waits at its end for a renewal that is under way."""
WRITES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLease:
    name: str
    number: int
    """The number of the log entry whose checkpoint is being read; 0 if it cannot be read from the
    lease."""
    until_unix_s: float
    """The end of the lease, by the reader's clock."""


@contextmanager
def reading(bucket: Bucket, number: int, *, renew_s: float = LEASE_S / 3) -> Iterator[bool]:
    """Hold a lease on the checkpoint of this entry while the body runs.

    It yields False if this process may not write: then nothing stops a deletion, and the reader
    notices the deletion by a missing part.

    Raises:
        Damaged: the checkpoint was given up before the lease was written; use another.
    """
    name = f"{LEASES}/{secrets.token_hex(8)}.json"
    try:
        _write(bucket, name, number)
        is_held = True
    except (Refused, EnvironmentProblem):
        is_held = False
    if not is_held:
        yield False
        return
    ended = threading.Event()
    renewer = threading.Thread(
        target=_renew, args=(bucket, name, number, renew_s, ended), name="lease", daemon=True
    )
    try:
        if number not in CommitLog(bucket).kept():
            raise Damaged(f"Checkpoint {number} at {bucket.url} was given up meanwhile.")
        renewer.start()
        yield True
    finally:
        ended.set()
        if renewer.is_alive():
            renewer.join(END_S)
        _delete(bucket, name)


def leases(bucket: ReadableBucket) -> list[ReadLease]:
    """Read all leases, including those that are over."""
    listed = bucket.list(LEASES, LEASE_LIMIT, lambda name: name.endswith(".json"))

    def read(one: ListedObject) -> ReadLease | None:
        try:
            data = bucket.read(one.name, LEASE_LIMIT_BYTES)
        except ObjectMissing:
            return None  # Its reader has ended.
        return _lease(one, data)

    if not listed:
        return []
    with ThreadPoolExecutor(8) as pool:
        return [found for found in pool.map(read, listed) if found is not None]


def leased(bucket: ReadableBucket, now: Callable[[], float] = time.time) -> frozenset[int]:
    """Return the numbers of the checkpoints that are being read."""
    now_unix_s = now()
    return frozenset(each.number for each in leases(bucket) if not is_over(each, now_unix_s))


def is_over(lease: ReadLease, now_unix_s: float) -> bool:
    """Return whether the lease has surely run out, by whichever host's clock. Pure."""
    return now_unix_s > lease.until_unix_s + GRACE_S


def _lease(one: ListedObject, data: bytes) -> ReadLease:
    try:
        fields = json.loads(data)
        number, until_unix_s = fields["number"], fields["until_unix_s"]
        is_sound = type(number) is int and type(until_unix_s) in (int, float)
    except (ValueError, KeyError, TypeError, RecursionError):
        is_sound = False
    if not is_sound:
        # Holds nothing, and can be swept by the time at which it was written.
        return ReadLease(name=one.name, number=0, until_unix_s=one.modified_unix_s + LEASE_S)
    return ReadLease(name=one.name, number=number, until_unix_s=float(until_unix_s))


def _renew(bucket: Bucket, name: str, number: int, renew_s: float, ended: threading.Event) -> None:
    while not ended.wait(renew_s):
        with contextlib.suppress(ElasticdError):  # The next one may work.
            _write(bucket, name, number)
    # A write that came through after the reader's own `_delete`.
    _delete(bucket, name)


def _write(bucket: Bucket, name: str, number: int) -> None:
    text = json.dumps({"number": number, "until_unix_s": time.time() + LEASE_S}).encode()
    for left in reversed(range(WRITES)):
        try:
            bucket.replace(name, text)
        except ObjectMissing:
            # On a file system the folder goes with the last lease in it, perhaps right now.
            if not left:
                raise
        else:
            return


def _delete(bucket: Bucket, name: str) -> None:
    with contextlib.suppress(ElasticdError):  # Then it ends by its time.
        bucket.delete([name])
