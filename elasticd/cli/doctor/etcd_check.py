"""Checks a cluster's etcd: each member, this user's right to write, and the time of a write."""

import secrets
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

from elasticd.cli.doctor.finding import Finding, Verdict
from elasticd.cli.etcd_flags import open_store, prepare_store
from elasticd.cli.terminal.words import seconds
from elasticd.errors import ElasticdError
from elasticd.records.keys import Keys
from elasticd.store.api import NODE_LEASE_TTL_S, Delete, Put, StoreSettings, Txn

__all__ = ["check_endpoints", "check_writes"]

WRITES = 20
SLOW_S = 0.05
"""A write that takes longer gets a warning: a change of world writes a few records in sequence."""


def check_endpoints(settings: StoreSettings, keys: Keys) -> Iterator[Finding]:
    """Ask each endpoint separately, and yield a finding for each.

    A daemon silently asks the next endpoint if one does not answer. So an endpoint that fails is
    only a warning if another endpoint answers.
    """
    failures = {
        each: _failure(replace(settings, endpoints=(each,)), keys) for each in settings.endpoints
    }
    bad = Verdict.WARNING if "" in failures.values() else Verdict.PROBLEM
    for endpoint, why in failures.items():
        verdict = bad if why else Verdict.OK
        yield Finding(subject="etcd", verdict=verdict, found=why or f"{endpoint} answers")


def _failure(settings: StoreSettings, keys: Keys) -> str:
    """Return why an etcd cannot be read; empty if it can be read."""
    try:
        open_store(settings, keys).close()
    except ElasticdError as exc:
        return str(exc)
    return ""


def check_writes(
    settings: StoreSettings, keys: Keys, *, slow_s: float = SLOW_S
) -> Iterator[Finding]:
    """Write a test record under a lease several times, and remove the record.

    Raises: Unavailable, Refused: etcd does not take the record; the message says why.
    """
    store = prepare_store(settings)
    key = keys.trial(secrets.token_hex(8))
    took_s = []
    try:
        lease = store.grant(NODE_LEASE_TTL_S, lambda: None)
        try:
            for number in range(WRITES):
                began_s = time.monotonic()
                store.commit(Txn(then=(Put(key=key, value=str(number).encode(), lease=lease.id),)))
                took_s.append(time.monotonic() - began_s)
            store.commit(Txn(then=(Delete(key=key),)))
        finally:
            lease.revoke()
    finally:
        store.close()
    middle_s, most_s = statistics.median(took_s), max(took_s)
    is_slow = middle_s > slow_s or most_s > NODE_LEASE_TTL_S / 5
    yield Finding(
        subject="etcd",
        verdict=Verdict.WARNING if is_slow else Verdict.OK,
        found=f"{WRITES} writes below {keys.root} took {seconds(middle_s)} each (median), "
        f"{seconds(most_s)} at most",
        advice="Each change of world waits for a few of them. Give etcd a disk of its own with "
        "fast syncs (an SSD), near the nodes."
        if is_slow
        else "",
    )
