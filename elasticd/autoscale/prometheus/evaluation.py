"""Sends all queries of one evaluation within one time limit.

Each distinct text is sent once, by POST (a GET's address has a limit), by a few threads over kept
connections. A text that Prometheus has answered with a vector before is afterwards sent with up to
39 others as one union (`batch`), in which each query keeps its meaning. An unknown text, a scalar,
or a text that failed or was slow is sent separately. If a union fails, warns, or takes longer than
a second, its parts are sent separately in the same evaluation, since one of them may be the cause.
A union gets at most a third of the time. A text that took longer than that by itself comes last the
next time.

No query waits for another job's query: answers are passed on as they arrive, and a request that
takes longer than a second does not keep its thread from the others, so that eight queries that hang
do not delay a ninth. A query that hangs costs its own job the reading, and the evaluation its time.

Rejected: recording rules (they change another team's Prometheus), and one union of everything (one
bad query would cost all jobs their readings).
"""

import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from threading import Condition, Thread

from elasticd.autoscale.prometheus.answer import QueryAnswer, QueryFailure
from elasticd.autoscale.prometheus.batch import PARTS_LIMIT, apart, union
from elasticd.autoscale.prometheus.session import Call, HttpSession
from elasticd.records.autoscale.held import HoldReason

__all__ = ["QUERY", "THREADS_LIMIT", "WORKERS", "KnownQueries", "QueryEvaluation"]

QUERY = "/api/v1/query"
WORKERS = 8
THREADS_LIMIT = 4 * WORKERS
"""The limit for the number of threads, including threads that hang where they cannot be
interrupted, for instance in DNS."""
PATIENCE_S = 1.0
"""A request that takes longer than this time in seconds may hang."""
LOOK_S = 0.25
"""The pause in seconds between two checks for such requests, while answers are awaited."""
UNION_SHARE = 1 / 3
"""The part of the time for a union, so that twice as much is left for its parts."""
_LATE = QueryFailure(why=HoldReason.UNREACHABLE, detail="Prometheus has not answered in time.")


class KnownQueries:
    """The results of earlier evaluations for each text; the evaluating thread owns them."""

    def __init__(self) -> None:
        self.vectors: set[str] = set()
        """The texts that may be part of a union."""
        self.slow: set[str] = set()
        self._ages: set[str] = set()
        self.threads: list[Thread] = []

    def expect(self, texts: Iterable[str], ages: Iterable[str]) -> None:
        """Keep only the texts that are still needed, since jobs come and go for months.

        The queries for ages, which elasticd writes, give vectors: a new one is part of a union at
        once.
        """
        now = set(ages)
        self.vectors |= now - self._ages
        self._ages = now
        kept = now.union(texts)
        self.vectors &= kept
        self.slow &= kept


@dataclass(slots=True, kw_only=True)
class _Asked:
    """One request that was sent."""

    texts: tuple[str, ...]
    """The texts that are sent as one query."""
    since_s: float
    is_apart: bool = False
    """True for a union whose parts have been queued separately."""


class QueryEvaluation:
    """The queries of one evaluation; `arrivals` is called once."""

    def __init__(self, session: HttpSession, known: KnownQueries, deadline_s: float) -> None:
        """`deadline_s` is a time of the monotonic clock."""
        self._session, self._known, self._deadline_s = session, known, deadline_s
        self._union_s = UNION_SHARE * max(0.0, deadline_s - time.monotonic())
        self._union_deadline_s = deadline_s - self._union_s * (1 / UNION_SHARE - 1)
        self._news = Condition()
        self._left: deque[tuple[str, ...]] = deque()
        """The queue of requests: each entry has the texts that are sent as one query."""
        self._found: dict[str, QueryAnswer | QueryFailure] = {}
        self._working = 0
        """The threads that send requests."""
        self._under_way: dict[Call, _Asked] = {}
        self._is_over = False

    def arrivals(
        self, texts: Sequence[str]
    ) -> Generator[dict[str, QueryAnswer | QueryFailure], None, None]:
        """Send all queries; yield one answer or failure for each, as they arrive.

        The last answers are yielded no later than the deadline. A caller that stops earlier closes
        the iterator.
        """
        wanted = dict.fromkeys(texts)
        yielded = 0
        try:
            with self._news:
                self._left.extend(self._planned(list(wanted)))
                self._start()
            while yielded < len(wanted):
                fresh = self._fresh(yielded)
                if not fresh:
                    break
                yielded += len(fresh)
                yield fresh
        finally:
            self._end()
        late: dict[str, QueryAnswer | QueryFailure] = {
            text: _LATE for text in wanted if text not in self._found
        }
        if late:
            yield late

    def _fresh(self, yielded: int) -> dict[str, QueryAnswer | QueryFailure]:
        """Wait for answers after the first `yielded`, and return them; none if the time is over."""
        with self._news:
            while len(self._found) <= yielded:
                left_s = self._deadline_s - time.monotonic()
                if left_s <= 0:
                    break
                self._news.wait(min(LOOK_S, left_s))
                self._pass_by_slow()
            return dict(list(self._found.items())[yielded:])

    def _pass_by_slow(self) -> None:
        """Make sure that a request that may hang blocks no other; the caller holds the lock."""
        now_s = time.monotonic()
        for call, asked in self._under_way.items():
            if len(asked.texts) == 1 or now_s < asked.since_s + PATIENCE_S:
                continue
            if not asked.is_apart:
                asked.is_apart = True
                self._left.extend((text,) for text in asked.texts)
            if now_s >= self._union_deadline_s:
                call.abort()
        self._start()

    def _end(self) -> None:
        """Abort the requests that are left; remember slow texts and those that gave a vector."""
        with self._news:
            self._is_over = True
            self._left.clear()
            is_overdue = time.monotonic() >= self._deadline_s
            for call, asked in self._under_way.items():
                call.abort()
                if is_overdue and len(asked.texts) == 1 and asked.texts[0] not in self._found:
                    self._known.slow.update(asked.texts)
                    self._known.vectors.difference_update(asked.texts)
            self._learn()

    def _planned(self, texts: list[str]) -> list[tuple[str, ...]]:
        together = [text for text in texts if text in self._known.vectors]
        alone = [text for text in texts if text not in self._known.vectors]
        alone.sort(key=lambda text: text in self._known.slow)
        unions = [
            tuple(together[at : at + PARTS_LIMIT]) for at in range(0, len(together), PARTS_LIMIT)
        ]
        return unions + [(text,) for text in alone]

    def _start(self) -> None:
        """Start a thread for each request, up to the limit; the caller holds the lock."""
        threads = self._known.threads
        threads[:] = [thread for thread in threads if thread.is_alive()]
        long_ago_s = time.monotonic() - PATIENCE_S
        stuck = sum(asked.since_s < long_ago_s for asked in self._under_way.values())
        free = WORKERS - (self._working - stuck)
        for _ in range(min(free, len(self._left), THREADS_LIMIT - len(threads))):
            thread = Thread(target=self._work, name="prometheus", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # No more threads on this machine: fewer send.
                return
            threads.append(thread)
            self._working += 1

    def _work(self) -> None:
        while True:
            with self._news:
                texts = self._taken()
                if not texts:  # This is also so if the time is over.
                    self._working -= 1
                    return
                is_union = len(texts) > 1
                call = Call(self._union_deadline_s if is_union else self._deadline_s)
                began_s = time.monotonic()
                self._under_way[call] = _Asked(texts=texts, since_s=began_s)
            expression = union(texts) if is_union else texts[0]
            answer: QueryAnswer | QueryFailure
            try:
                answer = self._session.ask(QUERY, {"query": expression}, call)
            except Exception as exc:  # A bug of ours, or of urllib3: others still get answers.
                bug = f"This is a bug of elasticd: {type(exc).__name__}."
                answer = QueryFailure(why=HoldReason.UNREACHABLE, detail=bug)
            self._note(answer, time.monotonic() - began_s, call)

    def _taken(self) -> tuple[str, ...]:
        """Return the next texts to send as one query; none if the queue is empty.

        The caller holds the lock.
        """
        while self._left:
            texts = self._left.popleft()
            if len(texts) > 1 or texts[0] not in self._found:
                return texts
        return ()

    def _note(self, answer: QueryAnswer | QueryFailure, took_s: float, call: Call) -> None:
        with self._news:
            asked = self._under_way.pop(call)
            if self._is_over:
                return
            texts = asked.texts
            if len(texts) == 1:
                self._found.setdefault(texts[0], answer)
                if took_s > self._union_s:
                    self._known.slow.add(texts[0])
                else:
                    self._known.slow.discard(texts[0])
            else:
                parts = apart(answer, texts) if isinstance(answer, QueryAnswer) else None
                for text, part in (parts or {}).items():
                    self._found.setdefault(text, part)
                if parts is None and not asked.is_apart:
                    self._left.extend((text,) for text in texts)
                    self._start()
            self._news.notify_all()

    def _learn(self) -> None:
        for text, answer in self._found.items():
            if text not in self._known.slow and _is_plain_vector(answer):
                self._known.vectors.add(text)
            else:
                self._known.vectors.discard(text)


def _is_plain_vector(answer: QueryAnswer | QueryFailure) -> bool:
    return isinstance(answer, QueryAnswer) and answer.kind == "vector" and not answer.warnings
