"""Whether a pool may be a fork of a server, or must be a program of its own: pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from elasticd.channel.fork_server import ForkOrder, ForkRefused
from elasticd_agent.pool.warmup import ONE_THREAD

__all__ = ["ServerFacts", "refusal"]

_READ_BY_LIBRARIES = (
    *("ATEN_", "BLIS_", "C10_", "CUDA_", "DNNL_", "GLIBC_", "GOMP_", "GOTO_", "HIP_", "HSA_"),
    *("KINETO_", "KMP_", "LANG", "LC_", "LD_", "MALLOC_", "MIOPEN_", "MKL_", "NUMEXPR_", "OMP_"),
    *("ONEDNN_", "OPENBLAS_", "PYTHON", "PYTORCH_", "ROCM_", "ROCR_", "TORCH", "TRITON_", "XLA_"),
)
"""Beginnings of variables that the loader, the interpreter or torch's libraries read in C as they
are loaded, which is not seen. NCCL and Gloo read theirs later, in each worker."""

_SET_FOR_THE_IMPORTS = frozenset(ONE_THREAD)
_MASK = "_VISIBLE_DEVICES"
"""The end of a variable that hides GPUs; a worker has its own, and reads it later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What holds of a server for its whole life."""

    surroundings: Mapping[str, str]
    env: Mapping[str, str]
    """The environment in which it imported torch."""
    reads: Collection[str]
    """The variables that were read meanwhile."""
    installation: tuple[tuple[str, int], ...]


def refusal(
    order: ForkOrder, own: ServerFacts, installation: tuple[tuple[str, int], ...]
) -> ForkRefused | None:
    """Return why a fork would not be what a new process would be; None if it would be."""
    if installation != own.installation:
        return ForkRefused(why="packages were installed since it imported torch", is_stale=True)
    for name in sorted({*own.surroundings, *order.surroundings}):
        if own.surroundings.get(name) != order.surroundings.get(name):
            return ForkRefused(why=f"the agent has another {name}")
    for name in sorted({*own.env, *order.env}):
        if own.env.get(name) != order.env.get(name) and _is_kept(name, own.reads):
            return ForkRefused(why=f"the job has another {name} in its environment")
    return None


def _is_kept(name: str, reads: Collection[str]) -> bool:
    """Return whether what was imported keeps the value of this variable, as far as one can tell."""
    if name in _SET_FOR_THE_IMPORTS or name.endswith(_MASK):
        return False
    return name in reads or name.startswith(_READ_BY_LIBRARIES)
