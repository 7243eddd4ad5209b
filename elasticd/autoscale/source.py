"""Where numbers come from: one question of a policy, and what answers the questions of all jobs.

There are two sources: a Prometheus (`elasticd.autoscale.prometheus`), and the agents themselves
where there is none (`elasticd.autoscale.direct`).
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from elasticd.autoscale.evaluation_input import QueryReading

__all__ = ["Query", "MetricsSource"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One question of one job."""

    job: str
    name: str
    """The name of the metric in the policy; `price` for that of a budget."""
    text: str
    """The PromQL, with `$job` and `$window` filled in."""
    max_age_s: float = 60.0
    """Older samples count as missing."""
    window_s: float = 60.0
    """The policy's window; without a Prometheus, the time over which a counter's rate is taken."""


class MetricsSource(Protocol):
    """Answers one evaluation at a time; `readings` is called by one thread."""

    def readings(
        self, queries: Sequence[Query]
    ) -> Generator[Mapping[Query, QueryReading], None, None]:
        """Yield one reading for each query as it comes, within the source's own time limit.

        It never raises for what it cannot reach, and never leaves a query out: a reading without a
        number says why there is none. A caller that stops before the end closes the iterator.
        """
        ...

    def check(self, query: Query) -> QueryReading:
        """Return what the query says now, even if that is nothing yet, as `set` wants to know.

        Raises: CallError: it never will, with the source's own words. Unavailable: it does not
        answer.
        """
        ...

    def close(self) -> None: ...
