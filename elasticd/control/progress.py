"""Asks a running job's agents for its progress, which changes too often for etcd.

All ranks of a world step together, so the answer of one node is enough: the node of rank 0, if it
answers. Only a rank's own node knows the rank's process number.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

from elasticd.control.logs.log_slice import CHUNK_BYTES
from elasticd.control.logs.output import HttpFetch
from elasticd.control.report.job_time import job_time
from elasticd.control.report.report import JobReport
from elasticd.errors import ElasticdError, NotSupported
from elasticd.records.account.progress import RankProgress
from elasticd.records.codec import decode, from_plain
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import JobSpec
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.records.reason import Phase
from elasticd.records.world import World
from elasticd.store.api import ReadableStore, StoreSettings

__all__ = ["AskRanks", "read_goodput", "read_progress", "read_ranks"]

ASKED_NODES = 3
"""The number of nodes that are asked: silent agents must not make `status` slow."""
ANSWER_TIMEOUT_S = 1.5
NODES_LIMIT = 64
"""The number of nodes that are asked for all ranks; of a larger world, the first ones."""
_DIGITS_LIMIT = 20
"""The length of the longest whole number that an answer may have."""
CALLS_AT_ONCE = 16


class AskRanks:
    """Asks the agents of one job repeatedly, over open connections, one thread for each node."""

    def __init__(self, job: JobName, settings: StoreSettings | None) -> None:
        self._job = job
        self._fetch = HttpFetch(settings, ANSWER_TIMEOUT_S)

    def __call__(self, world: World, nodes: Mapping[NodeId, Node]) -> tuple[RankProgress, ...]:
        """Return the ranks of the first of a world's nodes that answers; empty if none does."""
        first = (nodes.get(place.node) for place in world.nodes[:ASKED_NODES])
        return self.first_of(node for node in first if node is not None)

    def first_of(self, nodes: Iterable[Node]) -> tuple[RankProgress, ...]:
        """Return the ranks of the first node that answers; empty if none does."""
        return next(filter(None, map(self.of, nodes)), ())

    def of(self, node: Node) -> tuple[RankProgress, ...]:
        """Return the ranks of a node; empty if it does not answer."""
        body = self._fetch.get(node, f"/v1/progress/{self._job}", CHUNK_BYTES)
        return _parsed(body) if body else ()

    def close(self) -> None:
        self._fetch.close()


def read_progress(
    store: ReadableStore, keys: Keys, report: JobReport, settings: StoreSettings | None
) -> tuple[RankProgress, ...]:
    """Return the ranks of the first node that answers.

    The result is empty if the job does not run, or if no node answers.
    """
    if report.status.phase is not Phase.RUNNING:
        return ()
    with closing(AskRanks(report.spec.name, settings)) as ask:
        return ask.first_of(_nodes(store, keys, report, ASKED_NODES))


def read_ranks(
    store: ReadableStore, keys: Keys, report: JobReport, settings: StoreSettings | None
) -> tuple[RankProgress, ...]:
    """Return the ranks of all nodes that answer, in order; empty if the job does not run."""
    if report.status.phase is not Phase.RUNNING:
        return ()
    nodes = list(_nodes(store, keys, report, NODES_LIMIT))
    with (
        closing(AskRanks(report.spec.name, settings)) as ask,
        ThreadPoolExecutor(CALLS_AT_ONCE) as threads,
    ):
        found = list(threads.map(ask.of, nodes))  # Each node has its own connection.
    return tuple(sorted((rank for ranks in found for rank in ranks), key=lambda one: one.rank))


def read_goodput(store: ReadableStore, keys: Keys, spec: JobSpec) -> float | None:
    """Return the share of all slots' time that trained so far; None if it is not known.

    The share is not known if no steps are seen, or if etcd does not answer or was closed.
    """
    with suppress(ElasticdError, ValueError):
        progress = store.get(keys.progress(spec.name))
        spent = [item.value for item in store.list(keys.times_spent(spec.name)).items]
        found = job_time(progress.value if progress is not None else None, spent, spec.uid)
        if found is not None and found.has_steps:
            return found.goodput
    return None


def _nodes(store: ReadableStore, keys: Keys, report: JobReport, limit: int) -> Iterator[Node]:
    for node in report.world.nodes[:limit] if report.world is not None else ():
        item = store.get(keys.node(node.node))
        if item is not None:
            with suppress(NotSupported):  # A newer agent's record: as if it did not answer.
                yield decode(Node, item.value)


def _parsed(body: bytes) -> tuple[RankProgress, ...]:
    """Return the ranks in an answer; a malformed answer gives no ranks."""
    try:
        plain = json.loads(body, parse_float=_finite, parse_constant=_finite, parse_int=_sized)
        found: tuple[RankProgress, ...] = from_plain(tuple[RankProgress, ...], plain)
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)  # An age that is none would end whoever shows it.
    return value


def _sized(text: str) -> int:
    if len(text) > _DIGITS_LIMIT:
        raise ValueError(text[:_DIGITS_LIMIT])
    return int(text)
