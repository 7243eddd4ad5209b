"""Checks this machine: memory, shared memory, open files, the run folder, its address."""

import os
import platform
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from elasticd import __version__
from elasticd.cli.daemons.agent import make_folder
from elasticd.cli.doctor.finding import Finding, Verdict
from elasticd.cli.machine import cpu_count
from elasticd.cli.terminal.words import counted, size_of
from elasticd.store.private_etcd.etcd_program import find_etcd
from elasticd.telemetry.cgroup import memory_limit
from elasticd_agent.worker_setup.gpus import visible_gpus

__all__ = [
    "check_address",
    "check_machine",
    "check_oom_kills",
    "check_open_files",
    "check_private_etcd",
    "check_run_folder",
    "check_shared_memory",
]

SHARED_MEMORY_BYTES = 1_000_000_000
"""With less, a DataLoader with several workers soon gets a bus error. Docker's default is 64 MiB.
"""
OPEN_FILES = 4096
"""The least limit of open files: a rank has a connection to each other rank, and an agent to each
other agent."""
FREE_BYTES = 1_000_000_000


def check_machine(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield one finding that lists the CPUs, memory and GPUs; it is never a problem."""
    limit = memory_limit()
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = f"{size_of(total)} of memory"
    if limit is not None and limit.size_bytes < total:
        memory = f"{size_of(limit.size_bytes)} of memory (the limit of this container)"
    gpus = visible_gpus(environ)
    yield Finding(
        subject="machine",
        verdict=Verdict.OK,
        found=f"elasticd {__version__} on {platform.node()}, {platform.system()} "
        f"{platform.release()}: {counted(cpu_count(), 'CPU')}, {memory}, "
        f"{counted(len(gpus.names), 'GPU')}",
    )


def check_oom_kills(path: Path | None) -> Iterator[Finding]:
    """Yield which processes the kernel kills when memory is short.

    `path` is the result of `killed_together`.
    """
    subject = "out of memory"
    if path is None:
        found = "where memory is short, the kernel kills one process"
        yield Finding(subject=subject, verdict=Verdict.OK, found=found)
        return
    yield Finding(
        subject=subject,
        verdict=Verdict.WARNING,
        found=f"where memory is short, the kernel kills all processes here at once ({path} is 1), "
        "an agent with its workers and keepers, and `elasticd why` cannot say that it was for "
        "memory",
        advice="Set singleProcessOOMKill: true in the kubelet's configuration (Kubernetes 1.32 "
        "and later), or give the container more memory than its workers take.",
    )


def check_shared_memory(
    folder: Path = Path("/dev/shm"),  # noqa: S108  # Nothing is written to it.
) -> Iterator[Finding]:
    """Check the shared memory, in which a DataLoader's processes pass batches to a worker."""
    subject = "shared memory"
    size = shutil.disk_usage(folder).total
    if size >= SHARED_MEMORY_BYTES:
        yield Finding(subject=subject, verdict=Verdict.OK, found=f"{folder} has {size_of(size)}")
        return
    yield Finding(
        subject=subject,
        verdict=Verdict.WARNING,
        found=f"{folder} has {size_of(size)}: a DataLoader with num_workers above 0 passes its "
        "batches through it, and ends in a bus error when it is full",
        advice="Give the container more: docker run --shm-size 8g, or in a pod an emptyDir of "
        "medium Memory at /dev/shm.",
    )


def check_open_files() -> Iterator[Finding]:
    """Check how many files and connections a process may have open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES:
        most = "any number of files" if hard == resource.RLIM_INFINITY else f"{hard} files"
        yield Finding(subject="open files", verdict=Verdict.OK, found=f"a process may open {most}")
        return
    yield Finding(
        subject="open files",
        verdict=Verdict.WARNING,
        found=f"a process may open {hard} files, and a rank has a connection to each other rank",
        advice=f"Raise the hard limit to {OPEN_FILES} or more: ulimit -Hn, or LimitNOFILE= in a "
        "unit.",
    )


def check_run_folder(folder: Path) -> Iterator[Finding]:
    """Check whether the logs of workers can be written to the run folder.

    Raises: CallError: the folder cannot be created or written; the message says why.
    """
    is_there = folder.exists()
    make_folder(folder, "run folder", "--log-dir")
    free = shutil.disk_usage(folder).free
    if not is_there:
        folder.rmdir()
    is_full = free < FREE_BYTES
    yield Finding(
        subject="run folder",
        verdict=Verdict.WARNING if is_full else Verdict.OK,
        found=f"{folder} can be written, {size_of(free)} are free",
        advice="Make room there, or choose another --log-dir: workers' output goes there."
        if is_full
        else "",
    )


def check_address(find: Callable[[], str]) -> Iterator[Finding]:
    """Check at which address other nodes reach this machine.

    Raises: EnvironmentProblem: no address was found.
    """
    yield Finding(
        subject="address", verdict=Verdict.OK, found=f"other nodes reach this machine at {find()}"
    )


def check_private_etcd() -> Iterator[Finding]:
    """Check that there is an etcd program, which a run on this machine alone starts for itself.

    Raises: EnvironmentProblem: there is no etcd program.
    """
    yield Finding(
        subject="etcd",
        verdict=Verdict.OK,
        found=f"runs on this machine alone start {find_etcd()}; a cluster's was not named (--etcd)",
    )
