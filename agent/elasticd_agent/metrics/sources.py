"""Where a scrape finds what it tells; light, as an agent has it from its start."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elasticd.records.ids import JobName
from elasticd.store.request_times import RequestTimes
from elasticd_agent.lease.registration import Registration
from elasticd_agent.settings import AgentSettings

if TYPE_CHECKING:
    from elasticd_agent.metrics.job_meters import Readings

__all__ = ["Sources"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All may be asked from any thread."""

    settings: AgentSettings
    registration: Registration
    log_folders: Mapping[JobName, Path]
    """The run folders of jobs that asked for one of their own."""
    refused_writes: Callable[[], int]
    """Records that etcd refuses to take at the moment."""
    busy_s: Callable[[], float]
    """How long the owner's thread has been at one thing."""
    readings: "Callable[[], Readings | None]"
    """Asks the owner's thread about the jobs; None: it does not answer in time."""
    requests: RequestTimes | None
    """How long calls to etcd took; None where nobody measures that."""
