"""All queries of one evaluation, asked within one time limit.

What was chosen: each distinct text is asked once, by POST (a GET's address has a limit), by a few
threads over connections that are kept. A text that Prometheus has answered before with a vector is
from then on asked with up to 39 others as one union (`batch`), which PromQL can do without changing
what any of them means; an unknown one, a scalar, or one that failed or was slow is asked apart.
Where a union fails, or warns, its parts are asked apart in the same evaluation, since the fault may
be that of one of them; a union is given a third of the time, so that enough is left for that. What
took longer than that by itself comes last the next time: the others have their answers by then, and
it alone has none.

Rejected: recording rules (they change somebody's Prometheus), and one union of everything (one bad
query would blind all jobs).
"""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from threading import Condition, Thread

from elasticd.autoscale.prometheus.answer import Answer, Failure
from elasticd.autoscale.prometheus.batch import PARTS_LIMIT, apart, union
from elasticd.autoscale.prometheus.session import Call, Session
from elasticd.records.autoscale.held import Held

__all__ = ["QUERY", "THREADS_LIMIT", "WORKERS", "Evaluation", "Known"]

QUERY = "/api/v1/query"
WORKERS = 8
THREADS_LIMIT = 4 * WORKERS
"""With threads that are stuck where nobody can break them off, as in DNS."""
UNION_SHARE = 1 / 3
"""Of the time: as much is left for twice that, if its parts must be asked apart."""
_LATE = Failure(why=Held.UNREACHABLE, detail="Prometheus has not answered in time.")


class Known:
    """What earlier evaluations have shown of each text; owned by whoever evaluates."""

    def __init__(self) -> None:
        self.vectors: set[str] = set()
        """Texts that may be part of a union."""
        self.slow: set[str] = set()
        self._ages: set[str] = set()
        self.threads: list[Thread] = []

    def expect(self, texts: Iterable[str], ages: Iterable[str]) -> None:
        """Keep only what is still asked for: jobs come and go for months.

        Queries for ages, which are ours, are vectors: a new one is part of a union at once.
        """
        now = set(ages)
        self.vectors |= now - self._ages
        self._ages = now
        kept = now.union(texts)
        self.vectors &= kept
        self.slow &= kept


class Evaluation:
    """One evaluation; `answers` is called once."""

    def __init__(self, session: Session, known: Known, deadline_s: float) -> None:
        """`deadline_s`: on the monotonic clock."""
        self._session, self._known, self._deadline_s = session, known, deadline_s
        self._union_s = UNION_SHARE * max(0.0, deadline_s - time.monotonic())
        self._union_deadline_s = deadline_s - self._union_s * (1 / UNION_SHARE - 1)
        self._news = Condition()
        self._left: deque[tuple[str, ...]] = deque()
        """What nobody has taken yet: texts that are asked as one."""
        self._found: dict[str, Answer | Failure] = {}
        self._open = 0
        """Requests that are waiting or under way."""
        self._working = 0
        """Threads."""
        self._under_way: dict[Call, tuple[str, ...]] = {}
        self._is_over = False

    def answers(self, texts: Sequence[str]) -> dict[str, Answer | Failure]:
        """Ask all of them; return one answer or failure for each, no later than the deadline."""
        wanted = list(dict.fromkeys(texts))
        with self._news:
            self._left.extend(self._planned(wanted))
            self._open = len(self._left)
            self._start()
            self._wait(self._union_deadline_s)
            for call, asked in self._under_way.items():
                if len(asked) > 1:
                    call.abort()
            self._wait(self._deadline_s)
            self._is_over = True
            self._left.clear()
            for call, asked in self._under_way.items():
                call.abort()
                if len(asked) == 1:
                    self._known.slow.update(asked)
            found = {text: self._found.get(text, _LATE) for text in wanted}
            self._learn(found)
        return found

    def _wait(self, until_s: float) -> None:
        self._news.wait_for(lambda: not self._open, max(0.0, until_s - time.monotonic()))

    def _planned(self, texts: list[str]) -> list[tuple[str, ...]]:
        together = [text for text in texts if text in self._known.vectors]
        alone = [text for text in texts if text not in self._known.vectors]
        alone.sort(key=lambda text: text in self._known.slow)
        unions = [
            tuple(together[at : at + PARTS_LIMIT]) for at in range(0, len(together), PARTS_LIMIT)
        ]
        return unions + [(text,) for text in alone]

    def _start(self) -> None:
        """Have a thread for each thing to ask, but not too many; with the lock held."""
        threads = self._known.threads
        threads[:] = [thread for thread in threads if thread.is_alive()]
        count = min(WORKERS - self._working, len(self._left), THREADS_LIMIT - len(threads))
        for _ in range(count):
            thread = Thread(target=self._work, name="prometheus", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # The machine has no more: fewer ask, or nobody.
                return
            threads.append(thread)
            self._working += 1

    def _work(self) -> None:
        while True:
            with self._news:
                if not self._left:  # Also where the time is over.
                    self._working -= 1
                    return
                texts = self._left.popleft()
                is_union = len(texts) > 1
                call = Call(self._union_deadline_s if is_union else self._deadline_s)
                self._under_way[call] = texts
            began_s = time.monotonic()
            expression = union(texts) if is_union else texts[0]
            answer: Answer | Failure
            try:
                answer = self._session.ask(QUERY, {"query": expression}, call)
            except Exception as exc:  # A bug of ours, or of urllib3: others still get answers.
                bug = f"This is a bug of elasticd: {type(exc).__name__}."
                answer = Failure(why=Held.UNREACHABLE, detail=bug)
            self._note(texts, answer, time.monotonic() - began_s, call)

    def _note(
        self, texts: tuple[str, ...], answer: Answer | Failure, took_s: float, call: Call
    ) -> None:
        with self._news:
            self._under_way.pop(call)
            if self._is_over:
                return
            self._open -= 1
            if len(texts) == 1:
                self._found[texts[0]] = answer
                if took_s > self._union_s:
                    self._known.slow.add(texts[0])
                else:
                    self._known.slow.discard(texts[0])
            else:
                parts = apart(answer, texts) if isinstance(answer, Answer) else None
                if parts is None:
                    self._left.extend((text,) for text in texts)
                    self._open += len(texts)
                    self._start()
                else:
                    self._found.update(parts)
            self._news.notify_all()

    def _learn(self, found: dict[str, Answer | Failure]) -> None:
        for text, answer in found.items():
            if text not in self._known.slow and _is_plain_vector(answer):
                self._known.vectors.add(text)
            else:
                self._known.vectors.discard(text)


def _is_plain_vector(answer: Answer | Failure) -> bool:
    return isinstance(answer, Answer) and answer.kind == "vector" and not answer.warnings
