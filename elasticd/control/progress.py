"""Ask a running job's agents how far it is: it changes too often to stand in etcd.

All ranks of a world step together, so one node speaks for all: that of rank 0, if it answers. Which
process a rank is, only its own node knows.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from elasticd.control.output import CHUNK_BYTES, HttpFetch
from elasticd.control.report import JobReport
from elasticd.records.codec import decode, from_plain
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.records.progress import RankProgress
from elasticd.records.reason import Phase
from elasticd.store.api import Store, StoreSettings

__all__ = ["read_progress", "read_ranks"]

ASKED_NODES = 3
"""An agent that does not answer must not make `status` slow."""
ANSWER_TIMEOUT_S = 1.5
NODES_LIMIT = 64
"""Nodes whose ranks are all wanted: of a larger world, the first so many."""
CALLS_AT_ONCE = 16


def read_progress(
    store: Store, keys: Keys, report: JobReport, settings: StoreSettings | None
) -> tuple[RankProgress, ...]:
    """Return the ranks of the first node that answers; empty if the job does not run, or none."""
    if report.status.phase is not Phase.RUNNING:
        return ()
    fetch = HttpFetch(settings, ANSWER_TIMEOUT_S)
    try:
        for node in _nodes(store, keys, report, ASKED_NODES):
            if found := _ask(fetch, node, report):
                return found
    finally:
        fetch.close()
    return ()


def read_ranks(
    store: Store, keys: Keys, report: JobReport, settings: StoreSettings | None
) -> tuple[RankProgress, ...]:
    """Return the ranks of all nodes that answer, in their order; empty if the job does not run."""
    if report.status.phase is not Phase.RUNNING:
        return ()
    fetch = HttpFetch(settings, ANSWER_TIMEOUT_S)
    nodes = list(_nodes(store, keys, report, NODES_LIMIT))
    with ThreadPoolExecutor(CALLS_AT_ONCE) as threads:
        found = list(threads.map(lambda node: _ask(fetch, node, report), nodes))
    fetch.close()
    return tuple(sorted((rank for ranks in found for rank in ranks), key=lambda one: one.rank))


def _ask(fetch: HttpFetch, node: Node, report: JobReport) -> tuple[RankProgress, ...]:
    body = fetch.get(node, f"/v1/progress/{report.spec.name}", CHUNK_BYTES)
    return _parsed(body) if body else ()


def _nodes(store: Store, keys: Keys, report: JobReport, limit: int) -> Iterator[Node]:
    for node in report.world.nodes[:limit] if report.world is not None else ():
        item = store.get(keys.node(node.node))
        if item is not None:
            yield decode(Node, item.value)


def _parsed(body: bytes) -> tuple[RankProgress, ...]:
    """Read an answer; one that makes no sense is none."""
    try:
        found: tuple[RankProgress, ...] = from_plain(tuple[RankProgress, ...], json.loads(body))
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
    return found
