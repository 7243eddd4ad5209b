"""Whether a pool may be a fork of a server, or must be a program of its own: pure.

The command line asks as well, so nothing here may import torch.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from elasticd.channel.fork_server import ForkOrder, ForkRefused
from elasticd.records.job import JobSpec

__all__ = ["SET_FOR_THE_IMPORTS", "Installation", "ServerFacts", "can_be_forked", "refusal"]

Installation = frozenset[tuple[str, int]]
"""Files and folders of installed packages, with the times of their changes where those count."""

_READ_BY_LIBRARIES = (
    *("ATEN_", "BLIS_", "C10_", "CUDA_", "DNNL_", "GLIBC_", "GOMP_", "GOTO_", "HIP_", "HSA_"),
    *(
        "KINETO_",
        "KMP_",
        "LANG",
        "LC_",
        "LD_",
        "MALLOC_",
        "MIOPEN_",
        "MKL_",
        "NUMEXPR_",
        "NVSHMEM_",
        "OMP_",
    ),
    *(
        "ONEDNN_",
        "OPENBLAS_",
        "PYTHON",
        "PYTORCH_",
        "ROCM_",
        "ROCR_",
        "TORCH",
        "TCMALLOC_",
        "TRITON_",
        "UCC_",
        "UCX_",
        "XLA_",
    ),
)
"""Beginnings of variables that the loader, the interpreter or torch's libraries read in C as they
are loaded, which is not seen. NCCL and Gloo read theirs later, in each worker."""

SET_FOR_THE_IMPORTS = frozenset(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
)
"""The server has values of its own for these; a worker gets its number of threads by a call."""
_MASK = "_VISIBLE_DEVICES"
"""The end of a variable that hides GPUs; a worker has its own, and reads it later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The facts about a server at the time of an order."""

    surroundings: Mapping[str, str]
    """Where it runs now: both it and its agent may be moved while they live."""
    env: Mapping[str, str]
    """The environment in which it imported torch."""
    reads: Collection[str]
    """The variables that were read meanwhile."""
    installation: Installation


def can_be_forked(spec: JobSpec, environ: Mapping[str, str]) -> bool:
    """Return whether pools of this job may be forks of a server that has this environment.

    A pool that imports modules which the user names may take long, or hang. Only a program is the
    agent's child, and so learns meanwhile that its agent has died.
    """
    if spec.python or spec.needs_no_torch or spec.preload:
        return False
    return not any(
        environ.get(name) != text and _is_kept(name, ()) for name, text in spec.env.items()
    )


def refusal(order: ForkOrder, own: ServerFacts, installation: Installation) -> ForkRefused | None:
    """Return why a fork would differ from a new process; None if it would not."""
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
    """Return whether imported modules keep this variable's value, as far as one can tell."""
    if name in SET_FOR_THE_IMPORTS or name.endswith(_MASK):
        return False
    return name in reads or name.startswith(_READ_BY_LIBRARIES)
