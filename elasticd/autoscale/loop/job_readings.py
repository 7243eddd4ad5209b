"""Collects the readings of one evaluation for each job, as they arrive. Pure."""

from collections.abc import Iterable, Mapping

from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.metrics_source import Query
from elasticd.records.ids import JobName

__all__ = ["JobReadings"]


class JobReadings:
    """The readings of all jobs, by which a job is complete without a wait for another job's."""

    def __init__(self, asked: Mapping[JobName, Iterable[Query]]) -> None:
        """`asked` has the queries of each job; a job may have none."""
        self._lacks = {job: set(queries) for job, queries in asked.items()}
        self._found: dict[JobName, dict[str, QueryReading]] = {job: {} for job in asked}

    @property
    def queries(self) -> list[Query]:
        """Return all queries that have no reading yet."""
        return [query for queries in self._lacks.values() for query in queries]

    def add(self, arrived: Mapping[Query, QueryReading]) -> None:
        for query, reading in arrived.items():
            job = JobName(query.job)
            if job in self._lacks and query in self._lacks[job]:
                self._lacks[job].remove(query)
                self._found[job][query.name] = reading

    def take_complete(self) -> dict[JobName, dict[str, QueryReading]]:
        """Return the jobs whose readings are complete, with the readings; each job only once."""
        whole = [job for job, queries in self._lacks.items() if not queries]
        return {job: self._take(job) for job in whole}

    def take_rest(self) -> dict[JobName, dict[str, QueryReading]]:
        """Return the jobs that were not returned before, with the readings that have arrived."""
        return {job: self._take(job) for job in list(self._lacks)}

    def _take(self, job: JobName) -> dict[str, QueryReading]:
        del self._lacks[job]
        return self._found.pop(job)
