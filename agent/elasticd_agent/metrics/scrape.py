"""Puts the answer to one scrape together, on the thread of the request.

Imported with the first scrape: an agent that nobody scrapes pays nothing for it.
"""

from http import HTTPStatus
from pathlib import Path

from elasticd.records.job import JobSpec
from elasticd.telemetry.metrics.catalog import by_name
from elasticd.telemetry.metrics.exposition import CONTENT_TYPE, Histogram, Sample, exposition
from elasticd_agent.http_server.answer import HttpAnswer, text_answer
from elasticd_agent.loop.clock import now_s
from elasticd_agent.metrics.disk_room import DiskRooms
from elasticd_agent.metrics.job_samples import job_samples
from elasticd_agent.metrics.keeper_file import KeeperFiles
from elasticd_agent.metrics.node_samples import NodeReading, node_samples, process_samples
from elasticd_agent.metrics.sources import Sources

__all__ = ["Scrape"]


class Scrape:
    """Answers with all samples of this agent; any thread."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._keepers = KeeperFiles()
        self._rooms = DiskRooms()

    def answer(self) -> HttpAnswer:
        """Return the metrics, or 503 if the owner does not answer: Prometheus sees a down agent.

        Old values would look current, so no alert would fire.
        """
        begun = self._keepers.begin()
        readings = self._sources.readings()
        if readings is None:
            return text_answer(HTTPStatus.SERVICE_UNAVAILABLE, "The agent does not answer in time.")
        samples: list[Sample] = [*node_samples(self._node(), readings), *process_samples()]
        for job in readings.jobs:
            samples += job_samples(job)
        specs = [job.spec for job in readings.jobs]
        files = [(s.name, self._path(s, "keeper")) for s in specs if s.checkpoint is not None]
        files += [
            (s.name, self._path(s, "tensorboard")) for s in specs if s.tensorboard is not None
        ]
        samples += self._keepers.samples(files, begun)
        rooms = self._rooms.read({s.name: self._folder(s) for s in specs})
        room = by_name("elasticd_output_free_bytes")
        samples += [Sample(room, (job,), free) for job, free in rooms.items()]
        return HttpAnswer(body=exposition(samples), content_type=CONTENT_TYPE)

    def _node(self) -> NodeReading:
        sources = self._sources
        lease, requests = sources.registration.lease, sources.requests
        return NodeReading(
            slots=sources.settings.slots,
            is_draining=sources.registration.is_draining,
            lease_margin_s=lease.deadline_s - now_s() if lease is not None else 0.0,
            refused_writes=sources.refused_writes(),
            busy_s=sources.busy_s(),
            requests=Histogram(*requests.read()) if requests is not None else None,
        )

    def _path(self, spec: JobSpec, process: str) -> Path:
        node = self._sources.settings.node
        return self._folder(spec) / "agents" / f"{node}.{process}.prom"

    def _folder(self, spec: JobSpec) -> Path:
        sources = self._sources
        return sources.log_folders.get(spec.name, sources.settings.run_folder) / spec.name
