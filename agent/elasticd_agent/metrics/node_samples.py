"""The samples of a node: what its agent is, holds and waits for."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import elasticd
from elasticd.telemetry.metrics.catalog import by_name
from elasticd.telemetry.metrics.exposition import Histogram, Sample
from elasticd_agent.metrics.job_meters import Readings

__all__ = ["NodeReading", "node_samples", "process_samples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReading:
    """A node at one moment; seconds are seconds."""

    slots: int
    is_draining: bool
    lease_margin_s: float
    """How long its lease surely lives on."""
    refused_writes: int
    """Records that etcd refuses to take at the moment."""
    busy_s: float
    """How long the owner's thread has been at one thing."""
    requests: Histogram | None = None
    """How long calls to etcd took; None where nobody measures that."""


def node_samples(node: NodeReading, readings: Readings) -> Iterator[Sample]:
    """Yield what the agent exports of its node."""
    used = sum(job.slots for job in readings.jobs)
    yield Sample(by_name("elasticd_build_info"), (elasticd.__version__,), 1)
    yield Sample(by_name("elasticd_slots"), (), node.slots)
    yield Sample(by_name("elasticd_slots_used"), (), used)
    for job in readings.unserved:
        yield Sample(by_name("elasticd_job_slots"), (job,), 0)
    yield Sample(by_name("elasticd_node_draining"), (), float(node.is_draining))
    yield Sample(by_name("elasticd_lease_margin_seconds"), (), max(0.0, node.lease_margin_s))
    if node.requests is not None:
        yield Sample(by_name("elasticd_etcd_request_seconds"), (), node.requests)
    yield Sample(by_name("elasticd_etcd_refused_writes"), (), node.refused_writes)
    yield Sample(by_name("elasticd_owner_busy_seconds"), (), node.busy_s)


def process_samples() -> Iterator[Sample]:
    """Yield what the kernel says of this process; nothing of what it does not say."""
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat") as file:
            # Behind the name, which may have blanks and brackets, comes the third field.
            fields = file.read().rpartition(")")[2].split()
        tick = os.sysconf("SC_CLK_TCK")
        cpu_s = (int(fields[11]) + int(fields[12])) / tick
        resident = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        yield Sample(by_name("process_cpu_seconds_total"), (), cpu_s)
        yield Sample(by_name("process_resident_memory_bytes"), (), resident)
        yield Sample(by_name("process_open_fds"), (), len(os.listdir("/proc/self/fd")))
        started_s = int(fields[19]) / tick + _boot_unix_s()
        yield Sample(by_name("process_start_time_seconds"), (), started_s)


def _boot_unix_s() -> float:
    with open("/proc/stat") as file:
        line = next(line for line in file if line.startswith("btime "))
    return float(line.split()[1])
