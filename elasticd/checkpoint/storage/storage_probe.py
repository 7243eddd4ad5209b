"""Probes a storage before the first write of a process, to see whether checkpoints can rely on it.

Some servers that speak S3 take `If-None-Match: *` and write over what is there, store the framing
in which botocore sends a body over https as if it were data, or want its length first (411). None
of these servers says so, and checkpoints seem durable until somebody needs one. So an object is
created, created again, and read back: a small one, and before the first large write another, which
has a client of its own (`s3_put`).

The probe cannot find a store that keeps the condition for one writer at a time and not for two at
once. There neither writer learns of the other. `manifest.Fragment` names its run, so the objects of
the two do not mix.
"""

import secrets
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from threading import Lock, Thread
from typing import Protocol

from elasticd.checkpoint.format.layout import probe_name
from elasticd.checkpoint.storage.bucket import (
    Bucket,
    Data,
    NeedsLength,
    ObjectMissing,
    ReadableBucket,
)
from elasticd.checkpoint.storage.forwarding_bucket import ForwardingBucket
from elasticd.checkpoint.storage.s3_put import LARGE_BYTES
from elasticd.errors import ElasticdError, Refused
from elasticd.telemetry.log import get_logger

__all__ = ["ProbedBucket", "StorageFault", "fault_of"]

SMALL_BYTES = 100
PIECE_BYTES = 32

log = get_logger()


class StorageFault(StrEnum):
    """What a storage does wrong, in words."""

    FRAMED = "stores the framing of a body that is sent over https as if it were data"
    NEEDS_LENGTH = "wants to know the length of a body first (411)"
    OVERWRITES = (
        "takes a conditional write (If-None-Match: *) and writes over the object that is there, so "
        "two runs would write over each other's checkpoints unseen"
    )
    GARBLED = "does not give back what was written to it"


OF_FRAMING = (StorageFault.FRAMED, StorageFault.NEEDS_LENGTH)
"""A fault that ends if bodies are sent as they are."""


class Sending(Bucket, Protocol):
    """A bucket that can send bodies with and without framing."""

    def send_plain(self) -> bool:
        """Send bodies without framing from now on; return False if the bucket does so already."""


class ProbedBucket(ForwardingBucket):
    """A `Bucket` that is probed before its first write; if the probe fails, nothing is written."""

    def __init__(self, inner: Sending) -> None:
        super().__init__(inner)
        self._inner = inner
        self._lock = Lock()
        self._good: set[int] = set()
        """Sizes that were probed."""
        self._refusal = ""
        self.say: Callable[[str], object] = lambda sentence: log.warning(
            "storage.odd", why=sentence
        )
        """Told what a person should know of a storage that is used all the same."""

    def begin(self) -> None:
        """Begin the probe in a thread, so that the first write need not wait; raise nothing."""

        def run() -> None:
            with suppress(ElasticdError):  # The first write meets the same.
                self._probe(SMALL_BYTES)

        Thread(target=run, name="trial", daemon=True).start()

    def create(self, name: str, data: Data) -> bool:
        self._probe(len(data))
        return super().create(name, data)

    def replace(self, name: str, data: Data) -> None:
        self._probe(len(data))
        super().replace(name, data)

    def _probe(self, nbytes: int) -> None:
        """Raise Refused if the bucket cannot be used; after a passing error the next call tries
        again.
        """
        size = LARGE_BYTES if nbytes >= LARGE_BYTES else SMALL_BYTES
        with self._lock:
            if size in self._good:
                return
            if not self._refusal:
                fault = fault_of(self._inner, size)
                if fault in OF_FRAMING and self._inner.send_plain():
                    was, fault = fault, fault_of(self._inner, size)
                    if fault is None:
                        self.say(_plain(self.url, was))
                if fault is None:
                    self._good.add(size)
                    return
                self._refusal = _refusal(self.url, fault)
            raise Refused(self._refusal)


def fault_of(bucket: Bucket, size: int) -> StorageFault | None:
    """Create an object of this size twice, and read it; return what is wrong.

    Raises:
        ElasticdError: the storage does not answer, or refuses.
    """
    name = probe_name(secrets.token_hex(8))
    first, second = secrets.token_bytes(size), secrets.token_bytes(size)
    try:
        if not bucket.create(name, first):
            return StorageFault.GARBLED
        is_taken = bucket.create(name, second)
        standing = bucket.read(name, 2 * size)
        if standing == first and not is_taken:
            return (
                None if _piece(bucket, name, size) == first[-PIECE_BYTES:] else StorageFault.GARBLED
            )
        if standing in (first, second):
            return StorageFault.OVERWRITES
        is_framed = first in standing or second in standing
        return StorageFault.FRAMED if is_framed else StorageFault.GARBLED
    except NeedsLength:
        return StorageFault.NEEDS_LENGTH
    except ObjectMissing:
        return StorageFault.GARBLED
    finally:
        with suppress(ElasticdError):  # A sweep finds it.
            bucket.delete([name])


def _piece(bucket: ReadableBucket, name: str, size: int) -> bytes:
    """Return the end of an object: some servers answer a range with the checksum of the whole."""
    place = bytearray(PIECE_BYTES)
    count = bucket.read_into(name, size - PIECE_BYTES, memoryview(place))
    return bytes(place[:count])


def _plain(url: str, fault: StorageFault) -> str:
    return (
        f"{url} {fault.value}: bodies are sent as they are, signed with their SHA-256. To spare "
        'each process the trial, put "config_kwargs": {"request_checksum_calculation": '
        '"when_required"} into --storage-options.'
    )


def _refusal(url: str, fault: StorageFault) -> str:
    return f"{url} {fault.value}: nothing can be saved there safely. Give another --checkpoint."
