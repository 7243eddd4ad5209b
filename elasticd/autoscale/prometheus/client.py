"""The client for all jobs: readings for the loop, a check for `set`, past values for `simulate`."""

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.metrics_source import Query
from elasticd.autoscale.prometheus.answer import QueryAnswer, QueryFailure, number
from elasticd.autoscale.prometheus.credentials import Credentials
from elasticd.autoscale.prometheus.evaluation import THREADS_LIMIT, KnownQueries, QueryEvaluation
from elasticd.autoscale.prometheus.freshness import Clock, age_queries, age_s
from elasticd.autoscale.prometheus.query_value import reading
from elasticd.autoscale.prometheus.restart import Restart, Restarted
from elasticd.autoscale.prometheus.session import Call, HttpSession
from elasticd.autoscale.prometheus.settings import PrometheusSettings, endpoint
from elasticd.errors import CallError, EnvironmentProblem, Unavailable
from elasticd.records.autoscale.held import HoldReason

__all__ = ["PastReading", "PrometheusClient"]

RANGE = "/api/v1/query_range"
RESTART_SHARE = 0.1
"""The part of a range for which Prometheus must have run."""
RANGE_LIMIT_BYTES = 16 << 20
POINTS_LIMIT = 11_000
"""The number of points of one series that a range may have: Prometheus' own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastReading:
    """One value from the past."""

    ago_s: float
    """The seconds before now, by Prometheus' clock."""
    value: float


class PrometheusClient:
    """Queries one Prometheus; one thread at a time calls its methods."""

    def __init__(self, settings: PrometheusSettings) -> None:
        """Read all files that the settings name; make no connection yet.

        Raises: CallError: the settings are not valid. EnvironmentProblem: a file is missing, or has
        the wrong content.
        """
        self._timeout_s = settings.timeout_s
        self._endpoint = endpoint(settings)
        self._credentials = Credentials(settings, self._endpoint)
        self._session = HttpSession(self._endpoint, self._credentials.current(), THREADS_LIMIT)
        self._known, self._clock, self._restart = KnownQueries(), Clock(), Restart()

    @property
    def url(self) -> str:
        """Return Prometheus' address, which contains no secret."""
        return self._endpoint.url

    def read(self, queries: Sequence[Query]) -> Mapping[Query, QueryReading]:
        """Send all queries, and wait for the slowest."""
        return {query: each for part in self.readings(queries) for query, each in part.items()}

    def readings(
        self, queries: Sequence[Query]
    ) -> Generator[Mapping[Query, QueryReading], None, None]:
        """Send all queries, and those for their series' ages, within the settings' time limit.

        A reading is yielded as soon as its own query and ages are answered.
        """
        yield from self._readings(queries, looks_for_restart=True)

    def _readings(
        self, queries: Sequence[Query], *, looks_for_restart: bool
    ) -> Generator[dict[Query, QueryReading], None, None]:
        waiting = {each: age_queries(each.text, each.max_age_s) for each in queries}
        texts = [each.text for each in queries]
        of_ages = [text for asked in waiting.values() for text in asked]
        self._known.expect(texts, of_ages)
        found: dict[str, QueryAnswer | QueryFailure] = {}
        doubt: _Doubt | None = None
        for arrived in self._arrivals(texts + of_ages):
            found |= arrived
            if doubt is None and (clock_s := _clock_s(arrived)) is not None:
                limit_s = RESTART_SHARE * self._timeout_s
                doubt = _Doubt(
                    back_s=self._clock.back_s(clock_s),
                    restarted=self._restart.seen(self._session, clock_s, limit_s)
                    if looks_for_restart
                    else None,
                )
            whole = [
                query
                for query, asked in waiting.items()
                if query.text in found and all(text in found for text in asked)
            ]
            if whole:
                yield {query: _reading(query, waiting.pop(query), found, doubt) for query in whole}

    def check(self, query: Query) -> QueryReading:
        """Return the present value of the query, even if there is no number yet.

        Raises: CallError: Prometheus refuses the query, or it can never be one number; the message
        has Prometheus' reason. Unavailable: Prometheus does not answer.
        """
        answer = self._answers([query.text])[query.text]
        if isinstance(answer, QueryFailure):
            if answer.why is HoldReason.REFUSED:
                raise CallError(f"{query.name}: {query.text} is refused. {answer.detail}")
            if answer.why is HoldReason.UNREACHABLE:
                raise Unavailable(f"{query.name} cannot be checked. {answer.detail}")
        elif answer.kind not in ("vector", "scalar"):
            raise CallError(
                f"{query.name}: {query.text} is a {answer.kind}, not one number: use an "
                "expression of one value, as sum(rate(...))."
            )
        # For a person who sets a policy a gap is not important: the present value is.
        (found,) = self._readings([query], looks_for_restart=False)
        return found[query]

    def past(
        self, text: str, seconds: float, step_s: float, until_ago_s: float = 0.0
    ) -> tuple[PastReading, ...]:
        """Return the finite values of a query over a time span, oldest first.

        Args:
            text: the PromQL of one series.
            seconds: the length of the time span; above 0.
            step_s: the seconds between two points; above 0.
            until_ago_s: the age of the newest point in seconds; 0 for now.

        Raises:
            CallError: Prometheus refuses the query, or it has several series, or too many points.
            Unavailable: Prometheus does not answer.
        """
        if not 0 < seconds / step_s <= POINTS_LIMIT:
            raise CallError(
                f"{seconds:g} s in steps of {step_s:g} s are more points than one may ask."
            )
        now = self._answers(["time()"])["time()"]
        now_s = now.clock_s if isinstance(now, QueryAnswer) else None
        if isinstance(now, QueryFailure) or now_s is None:
            raise Unavailable(
                now.detail if isinstance(now, QueryFailure) else f"{self.url} has no time."
            )
        end_s = now_s - until_ago_s
        fields = {
            "query": text,
            "start": f"{end_s - seconds:.3f}",
            "end": f"{end_s:.3f}",
            "step": f"{step_s:.3f}",
        }
        call = Call(time.monotonic() + self._timeout_s)
        answer = self._session.ask(RANGE, fields, call, RANGE_LIMIT_BYTES)
        if isinstance(answer, QueryFailure):
            is_away = answer.why is HoldReason.UNREACHABLE
            raise (Unavailable if is_away else CallError)(f"{text}: {answer.detail}")
        if len({tuple(sorted(sample.labels.items())) for sample in answer.samples}) > 1:
            raise CallError(f"{text} has several series: make one of them, as by sum() or max().")
        points = ((sample.at_s, number(sample.text)) for sample in answer.samples)
        return tuple(
            PastReading(ago_s=max(0.0, now_s - at_s), value=value)
            for at_s, value in points
            if value is not None and abs(value) < float("inf")
        )

    def close(self) -> None:
        self._session.close()

    def _answers(self, texts: Sequence[str]) -> dict[str, QueryAnswer | QueryFailure]:
        return {text: each for part in self._arrivals(texts) for text, each in part.items()}

    def _arrivals(
        self, texts: Sequence[str]
    ) -> Generator[dict[str, QueryAnswer | QueryFailure], None, None]:
        if not texts:
            return
        deadline_s = time.monotonic() + (1 - RESTART_SHARE) * self._timeout_s
        try:
            shown = self._credentials.current()
        except EnvironmentProblem as exc:
            yield dict.fromkeys(texts, QueryFailure(why=HoldReason.UNREACHABLE, detail=str(exc)))
            return
        if shown is not self._session.shown:
            self._session.close()
            self._session = HttpSession(self._endpoint, shown, THREADS_LIMIT)
        yield from QueryEvaluation(self._session, self._known, deadline_s).arrivals(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doubt:
    """A reason to doubt all series of one Prometheus, from its first answer."""

    back_s: float
    """The seconds by which its clock went back."""
    restarted: Restarted | None
    """Its restart; None if it was certainly not restarted since the last evaluation."""


def _reading(
    query: Query,
    asked: Sequence[str],
    found: Mapping[str, QueryAnswer | QueryFailure],
    doubt: _Doubt | None,
) -> QueryReading:
    """Return the reading of one query; `asked` are the queries for its ages."""
    # A query without series, such as hour(), is never old.
    age = age_s(found[text] for text in asked) if asked else 0.0
    back_s = doubt.back_s if doubt is not None else 0.0
    result = reading(found[query.text], age, max_age_s=query.max_age_s, back_s=back_s)
    restarted = doubt.restarted if doubt is not None else None
    if restarted is None or not asked or result.value is None:
        return result
    if not restarted.is_gap(query.window_s):
        return result
    return QueryReading(
        value=None,
        why=HoldReason.UNREACHABLE,
        detail=f"Prometheus was started {restarted.ago_s:.0f} s ago: there is a gap.",
    )


def _clock_s(found: Mapping[str, QueryAnswer | QueryFailure]) -> float | None:
    """Return Prometheus' time from the first of these answers; each of them has the same time."""
    for answer in found.values():
        if isinstance(answer, QueryAnswer) and answer.clock_s:
            return answer.clock_s
    return None
