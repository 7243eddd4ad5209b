"""The environment and the files of one worker: what torchrun's scripts expect, and no secret.

Names and meanings follow torch.distributed.elastic (torch 2.13, `run.py` and
agent/server/local_elastic_agent.py), so that a script cannot tell the difference.
"""

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elasticd.channel.pool import Start
from elasticd.records.ids import Generation, JobName, NodeId, Rank, Slot
from elasticd.records.job import JobSpec
from elasticd.records.world import Placement, World
from elasticd_agent.worker_setup.gpus import MASKS, Gpus

__all__ = [
    "WorkerFiles",
    "interface_of",
    "prepared_env",
    "prepared_files",
    "start_order",
    "threads_of",
    "without_secrets",
    "worker_env",
    "worker_files",
]

_SIOCGIFADDR = 0x8915
"""The ioctl by which the kernel tells an interface's IPv4 address."""
_IPV6_TABLE = Path("/proc/net/if_inet6")
"""A line for each address: the address in 32 hexadecimal digits, four numbers, the interface."""
_SECRETS = "ELASTICD_ETCD"
"""Variables that open etcd. They stay with the agent, since workers run the user's code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFiles:
    out: Path
    err: Path
    error: Path
    """The file for a traceback in `@record`'s form."""
    rank: Rank | None = None
    """The rank whose files these are; None for a worker that has no rank yet."""

    @property
    def times(self) -> Path:
        """The file in which the agent notes how much of the first two stood when."""
        return self.out.with_suffix(".times")


def without_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what opens etcd."""
    return {key: value for key, value in env.items() if not key.startswith(_SECRETS)}


def worker_files(run_folder: Path, job: JobName, generation: Generation, rank: Rank) -> WorkerFiles:
    """Return where a rank of a generation writes.

    The generation is part of the path, so nothing is overwritten.
    """
    folder = run_folder / job / f"gen-{generation}"
    return WorkerFiles(
        out=folder / f"rank-{rank}.out",
        err=folder / f"rank-{rank}.err",
        error=folder / f"rank-{rank}.error.json",
        rank=rank,
    )


def worker_env(
    spec: JobSpec,
    world: World,
    placement: Placement,
    files: WorkerFiles,
    *,
    base: Mapping[str, str],
    interface: str,
    gpus: Gpus,
) -> dict[str, str]:
    """Return the whole environment of a worker.

    `base` is the agent's own, `interface` the network interface of this node's address (may be
    empty), `gpus` the node's devices in the order of the slots.
    """
    env = without_secrets(base)
    env.update(spec.env)
    local_size = len(placement.node.workers)
    rank, size = str(placement.rank), str(world.size)
    env.update(
        RANK=rank,
        LOCAL_RANK=str(placement.local_rank),
        WORLD_SIZE=size,
        LOCAL_WORLD_SIZE=str(local_size),
        GROUP_RANK=str(placement.group_rank),
        GROUP_WORLD_SIZE=str(len(world.nodes)),
        ROLE_RANK=rank,
        ROLE_WORLD_SIZE=size,
        ROLE_NAME=spec.role,
        MASTER_ADDR=world.store.host,
        MASTER_PORT=str(world.store.port),
        TORCHELASTIC_RESTART_COUNT=str(world.restarts),
        TORCHELASTIC_MAX_RESTARTS=str(spec.limits.user_error),
        TORCHELASTIC_RUN_ID=spec.name,
        TORCHELASTIC_USE_AGENT_STORE=str(not spec.needs_no_torch),
        TORCHELASTIC_ERROR_FILE=str(files.error),
        ELASTICD_GENERATION=str(world.generation),
        ELASTICD_NODE=placement.node.node,
        ELASTICD_RUN_FOLDER=str(files.out.parent.parent),
    )
    _add_common(env, spec, interface)
    if local_size > 1:
        env.setdefault("OMP_NUM_THREADS", "1")
    # The device follows the slot: another job may hold the first ones of this node.
    slots = [int(worker.slot) for worker in placement.node.workers]
    _add_device(env, spec, gpus, own=int(placement.worker.slot), shown=slots)
    return env


def prepared_env(
    spec: JobSpec,
    node: NodeId,
    slot: Slot,
    run_folder: Path,
    *,
    base: Mapping[str, str],
    interface: str,
    gpus: Gpus,
) -> dict[str, str]:
    """Return the environment of a worker that is to wait in `elasticd.run` for its first world.

    It has no rank yet, since that can differ from world to world. It sees only the device of its
    slot, as number 0; where devices cannot be counted, or the job brings a mask of its own, the
    slot is its index among them. A script
    that reads LOCAL_RANK before `elasticd.run` must not fail in its first replacement.
    """
    env = without_secrets(base)
    env.update(spec.env)
    env.update(
        LOCAL_RANK="0" if gpus.names and not spec.env.keys() & MASKS else str(slot),
        ROLE_NAME=spec.role,
        TORCHELASTIC_RUN_ID=spec.name,
        TORCHELASTIC_MAX_RESTARTS=str(spec.limits.user_error),
        ELASTICD_NODE=node,
        ELASTICD_RUN_FOLDER=str(run_folder / spec.name),
    )
    _add_common(env, spec, interface)
    if spec.workers_per_node != 1:
        env.setdefault("OMP_NUM_THREADS", "1")
    _add_device(env, spec, gpus, own=int(slot), shown=[int(slot)])
    return env


def prepared_files(run_folder: Path, job: JobName, name: str) -> WorkerFiles:
    """Return where a worker writes before it has a rank; no other process has the same `name`."""
    folder = run_folder / job / "prepared"
    return WorkerFiles(
        out=folder / f"{name}.out", err=folder / f"{name}.err", error=folder / f"{name}.error.json"
    )


def _add_common(env: dict[str, str], spec: JobSpec, interface: str) -> None:
    env.update(
        ELASTICD_JOB=spec.name,
        ELASTICD_ON_NAN=spec.on_nan,
        ELASTICD_COMPARE_EVERY=(
            str(spec.compare_every) if spec.compare_every or not spec.compares_seldom else ""
        ),
        PYTHONUNBUFFERED="1",
    )
    env.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    if interface:
        # Peers know us by this address; left alone, Gloo asks the resolver for the host's name.
        env.setdefault("GLOO_SOCKET_IFNAME", interface)
        # NCCL takes a name for the beginning of one; with "=" it is the whole.
        env.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")


def _add_device(
    env: dict[str, str], spec: JobSpec, gpus: Gpus, *, own: int, shown: list[int]
) -> None:
    """Tell a worker its slot, and show it the GPUs of some slots, where they can be counted.

    A job that brings a mask of its own keeps it: an empty one trains on the CPU.
    """
    env["ELASTICD_SLOT"] = str(own)
    if gpus.names and not spec.env.keys() & MASKS:
        env["ELASTICD_GPUS"] = str(len(gpus.names))
        count = len(gpus.names)
        env.update(gpus.mask([gpus.names[slot] for slot in shown if slot < count]))


def threads_of(env: Mapping[str, str]) -> int:
    """Return how many threads torch is to use; 0 means as many as it likes."""
    wanted = env.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdecimal() else 0


def start_order(
    name: str, spec: JobSpec, files: WorkerFiles, env: dict[str, str], *, cwd: str, niceness: int
) -> Start:
    """Return the order by which the pool starts a worker."""
    return Start(
        worker=name,
        entry_kind=spec.entry_kind,
        entry=spec.entry,
        args=spec.args,
        cwd=cwd,
        env=env,
        out_path=str(files.out),
        err_path=str(files.err),
        error_file=str(files.error),
        threads=threads_of(env),
        niceness=niceness,
    )


def interface_of(address: str, ipv6_table: Path = _IPV6_TABLE) -> str:
    """Return the network interface that has this address; empty if none has, or if it is a name."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(known, ipaddress.IPv6Address):
        return _interface_of_ipv6(known, ipv6_table)
    return _interface_of_ipv4(str(known))


def _interface_of_ipv4(address: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ""


def _interface_of_ipv6(address: ipaddress.IPv6Address, table: Path) -> str:
    wanted = address.packed.hex()
    with suppress(OSError):  # A kernel without IPv6 has no such file.
        for line in table.read_text(errors="replace").splitlines():
            digits, index, *_, name = line.split()
            # Several interfaces may have one link-local address; its zone says which is meant.
            zones = (None, name, str(int(index, 16)))
            if digits == wanted and address.scope_id in zones:
                return name
    return ""
