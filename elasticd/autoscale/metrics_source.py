"""The port to the sources of metrics: one query of a policy, and the answers for all jobs.

There are two sources: a Prometheus (`elasticd.autoscale.prometheus`), and, without one, the agents
themselves (`elasticd.autoscale.direct`).
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from elasticd.autoscale.evaluation_input import QueryReading

__all__ = ["Query", "MetricsSource"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of one job."""

    job: str
    name: str
    """The name of the metric in the policy; `price` for the price of a budget."""
    text: str
    """The PromQL, with `$job` and `$window` filled in."""
    max_age_s: float = 60.0
    """The greatest age of a sample in seconds; an older one counts as missing."""
    window_s: float = 60.0
    """The policy's window in seconds; without a Prometheus, the time over which a counter's rate is
    taken."""


class MetricsSource(Protocol):
    """A source of readings. It serves one evaluation at a time; one thread calls `readings`."""

    def readings(
        self, queries: Sequence[Query]
    ) -> Generator[Mapping[Query, QueryReading], None, None]:
        """Yield one reading for each query as it arrives, within the source's own time limit.

        The method never raises if a server cannot be reached, and never leaves a query out: a
        reading without a number has the reason. A caller that stops before the end closes the
        iterator.
        """
        ...

    def check(self, query: Query) -> QueryReading:
        """Return the present value of the query, even if there is no number yet, for `set`.

        Raises: CallError: the query can never have a number; the message has the source's own
        reason. Unavailable: the source does not answer.
        """
        ...

    def close(self) -> None: ...
