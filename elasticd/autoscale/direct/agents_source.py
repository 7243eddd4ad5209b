"""Scrapes all agents in each evaluation, and makes the readings that a Prometheus would give.

A number over several nodes exists only if every node answered: a missing part of a sum would look
like less load, or like less throughput. A node that died stays in etcd until its lease ends, and
until then nothing is decided.
"""

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from elasticd.autoscale.direct.history import CounterHistory
from elasticd.autoscale.direct.query_metric import SeriesQuery, wanted
from elasticd.autoscale.direct.scrape import Scrape, scraped
from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.metrics_source import Query
from elasticd.control.logs.output import HttpFetch
from elasticd.errors import CallError, ElasticdError
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.member import Node
from elasticd.store.api import StoreSettings

__all__ = ["AgentsSource"]

TIMEOUT_S = 2.0
SCRAPE_LIMIT_BYTES = 4 << 20
CALLS_AT_ONCE = 8
OK = 200


class AgentsSource:
    """Reads the metrics of all agents of a cluster; one thread at a time uses it."""

    def __init__(
        self,
        nodes: Callable[[], Sequence[Node]],
        settings: StoreSettings | None = None,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`nodes` returns the registered nodes; `settings` are those of etcd, whose TLS settings
        are used for the agents too.
        """
        self._nodes, self._now_s = nodes, now_s
        self._fetch = HttpFetch(settings, TIMEOUT_S)
        self._calls = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="scrape")
        self._histories: dict[Query, CounterHistory] = {}

    def readings(
        self, queries: Sequence[Query]
    ) -> Generator[Mapping[Query, QueryReading], None, None]:
        """Yield all readings at once, since every number covers all agents."""
        yield self.read(queries)

    def read(self, queries: Sequence[Query]) -> Mapping[Query, QueryReading]:
        """Scrape all agents once; return one reading for each query."""
        readings: dict[Query, QueryReading] = {}
        asked: dict[Query, SeriesQuery] = {}
        for query in queries:
            try:
                asked[query] = wanted(query)
            except CallError as exc:
                readings[query] = _none(HoldReason.REFUSED, str(exc))
        self._histories = {query: h for query, h in self._histories.items() if query in asked}
        if not asked:
            return readings
        found = self._scraped({each.metric.name for each in asked.values()})
        now_s = self._now_s()
        for query, each in asked.items():
            readings[query] = (
                found
                if isinstance(found, QueryReading)
                else self._reading(query, each, found, now_s)
            )
        return readings

    def check(self, query: Query) -> QueryReading:
        """Return the present value of the query; a counter has no value at the first scrape.

        Raises: CallError: the query names no metric of the agents, or one that is not a single
        number.
        """
        wanted(query)
        return self.read([query])[query]

    def close(self) -> None:
        self._calls.shutdown(wait=False, cancel_futures=True)
        self._fetch.close()

    def _scraped(self, names: set[str]) -> dict[str, Scrape] | QueryReading:
        """Return the series of each node; a reading without a number if a node does not answer."""
        try:
            nodes = list(self._nodes())
        except ElasticdError as exc:
            return _none(HoldReason.UNREACHABLE, f"etcd does not say which nodes there are: {exc}")
        if not nodes:
            return _none(HoldReason.EMPTY, "No agent is there.")
        found: dict[str, Scrape] = {}
        # All calls have ended when this returns: a connection has one user at a time.
        answers = list(self._calls.map(self._asked, nodes))
        for node, answer in zip(nodes, answers, strict=True):
            if answer is None or answer[0] != OK:
                fault = "does not answer" if answer is None else f"answers with HTTP {answer[0]}"
                return _none(HoldReason.UNREACHABLE, f"The agent of node {node.node} {fault}.")
            scrape = scraped(answer[1].decode("utf-8", "replace"), names)
            if scrape is None:
                return _none(
                    HoldReason.UNREACHABLE, f"The agent of node {node.node} is of another version."
                )
            found[node.node] = scrape
        return found

    def _asked(self, node: Node) -> tuple[int, bytes] | None:
        """Ask again if there was no answer: the server may have closed a kept connection."""
        return self._fetch.answer(node, "/metrics", SCRAPE_LIMIT_BYTES) or self._fetch.answer(
            node, "/metrics", SCRAPE_LIMIT_BYTES
        )

    def _reading(
        self, query: Query, each: SeriesQuery, found: Mapping[str, Scrape], now_s: float
    ) -> QueryReading:
        labels = tuple(each.labels[label.name] for label in each.metric.labels)
        values = {
            node: scrape[each.metric.name][labels]
            for node, scrape in found.items()
            if labels in scrape.get(each.metric.name, {})
        }
        if not values:
            return _none(HoldReason.EMPTY, f"No agent has {each.metric.name} of this job now.")
        if not each.is_rate:
            # While rank 0 moves, two nodes may have a series of one node: both values are the
            # job's.
            value = sum(values.values()) if each.is_sum else max(values.values())
            return _number(value, each.metric.name)
        history = self._histories.setdefault(query, CounterHistory(query.window_s))
        history.add(now_s, values)
        rate = history.rate()
        if rate is None:
            return _none(
                HoldReason.EMPTY, f"{each.metric.name} was read once, which makes no rate yet."
            )
        return _number(rate, each.metric.name)


def _number(value: float, name: str) -> QueryReading:
    if not math.isfinite(value):
        return _none(HoldReason.NOT_A_NUMBER, f"{name} is {value}, which is no number to go by.")
    if value < 0:
        return _none(HoldReason.NEGATIVE, f"{name} is {value:g}, which is below 0.")
    return QueryReading(value=value + 0.0)


def _none(why: HoldReason, detail: str) -> QueryReading:
    return QueryReading(value=None, why=why, detail=detail)
