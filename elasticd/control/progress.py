"""Ask a running job's agents how far it is: it changes too often to stand in etcd.

All ranks of a world step together, so one node speaks for all: that of rank 0, if it answers.
"""

import json
from collections.abc import Iterator

from elasticd.control.output import CHUNK_BYTES, HttpFetch
from elasticd.control.report import JobReport
from elasticd.records.codec import decode, from_plain
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.records.progress import RankProgress
from elasticd.records.reason import Phase
from elasticd.store.api import Store, StoreSettings

__all__ = ["read_progress"]

ASKED_NODES = 3
"""An agent that does not answer must not make `status` slow."""
ANSWER_TIMEOUT_S = 1.5


def read_progress(
    store: Store, keys: Keys, report: JobReport, settings: StoreSettings | None
) -> tuple[RankProgress, ...]:
    """Return the ranks of the first node that answers; empty if the job does not run, or none."""
    if report.status.phase is not Phase.RUNNING:
        return ()
    fetch = HttpFetch(settings, ANSWER_TIMEOUT_S)
    try:
        for node in _nodes(store, keys, report):
            body = fetch.get(node, f"/v1/progress/{report.spec.name}", CHUNK_BYTES)
            found = _parsed(body) if body else ()
            if found:
                return found
    finally:
        fetch.close()
    return ()


def _nodes(store: Store, keys: Keys, report: JobReport) -> Iterator[Node]:
    for node in report.world.nodes[:ASKED_NODES] if report.world is not None else ():
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
