"""Refuses what in-process mode cannot recover, with a sentence.

Training would go on with most of it, and be wrong after the first failure: a rank would get another
rank's part for a whole, other samples than its neighbours, or parameters that changed unnoticed. So
it is refused when it is given, not when it fails. docs/supported.md has the list.
"""

import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from elasticd.errors import CallError
from elasticd.tensors.local_shard import is_distributed
from elasticd.train.optimizer.optimizer_undo import parameters_of

__all__ = [
    "check_ended",
    "check_entry",
    "check_inner",
    "check_shapes",
    "check_step",
    "check_unknown",
    "warn_of_no_commit",
]

_PART = "of whose state each rank has only a part that State cannot recover"
_RESTART = (
    "leave out elasticd.run and let the script save and load by itself (elasticd run then starts "
    "its workers anew after a failure)"
)
_FSDP2 = "shard with torch.distributed.fsdp.fully_shard in a function of `world`"
_INNER = "use the optimizer that it wraps"
_LOADER = "give elasticd.Loader the map-style dataset that it reads"
_POSITION = (
    "whose position is that of one rank in a world of one size, so that all ranks would go on from "
    "that after a failure"
)
_SPLIT = (
    "which splits the computation of one sample over ranks, and elasticd gives each rank others"
)

_CLASSES: dict[tuple[str, str], tuple[str, str]] = {
    ("", "FullyShardedDataParallel"): (_PART, _FSDP2),
    ("", "ShardedDataParallel"): (_PART, _FSDP2),
    ("", "DeepSpeedEngine"): (_PART, _RESTART),
    ("", "PipelineEngine"): (_PART, _RESTART),
    ("", "ZeroRedundancyOptimizer"): (_PART, _INNER),
    ("fairscale", "OSS"): (_PART, _INNER),
    ("", "DeepSpeedZeroOptimizer"): (_PART, _RESTART),
    ("", "DeepSpeedZeroOptimizer_Stage3"): (_PART, _RESTART),
    ("megatron", "MegatronOptimizer"): (_PART, _RESTART),
    ("megatron", "DistributedOptimizer"): (_PART, _RESTART),
    ("apex", "DistributedFusedAdam"): (_PART, "use apex.optimizers.FusedAdam"),
    ("apex", "DistributedFusedLAMB"): (_PART, "use apex.optimizers.FusedLAMB"),
    ("", "ColumnParallelLinear"): (_SPLIT, _RESTART),
    ("", "RowParallelLinear"): (_SPLIT, _RESTART),
    ("", "VocabParallelEmbedding"): (_SPLIT, _RESTART),
    ("", "_PipelineStageBase"): (_SPLIT, _RESTART),
    ("", "StatefulDataLoader"): (_POSITION, _LOADER),
    ("datasets", "IterableDataset"): (_POSITION, _LOADER),
    ("torchmetrics", "Metric"): (
        "which keeps its numbers outside of its state_dict, so they would be lost",
        "make it in train and keep what it computes in the state",
    ),
}
"""By (package, class): what is wrong with it, and what to do. Without a package the name is known
enough."""

_DEVICES = ("cpu", "cuda", "meta")


def check_entry(name: str, value: object) -> None:
    """Refuse an entry of a State that would train wrongly after a failure.

    Raises:
        CallError: the message says what the entry is and what to give instead.
    """
    parts = value.modules() if isinstance(value, torch.nn.Module) else (value,)
    for part in parts:
        for base in type(part).__mro__:
            package = base.__module__.split(".")[0]
            known = _CLASSES.get(("", base.__name__)) or _CLASSES.get((package, base.__name__))
            if known is not None:
                _refuse(name, value, part, *known)
    if isinstance(value, DataLoader | IterableDataset) or _is_loader(value):
        _refuse(name, value, value, _POSITION, _LOADER)
    if isinstance(value, torch.nn.Module):
        check_shapes(name, value)
        _check_tensors(name, value, value.parameters())
        _check_placements(name, value)
    elif isinstance(value, torch.optim.Optimizer):
        _check_tensors(name, value, parameters_of(value))


def check_shapes(name: str, module: torch.nn.Module) -> None:
    """Refuse a tensor without a shape, also one that no state has: each commit copies it.

    Raises: CallError: the message names the tensor and says what to do.
    """
    for path, tensor in (*module.named_parameters(), *module.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            raise CallError(
                f"State({name}=...) has a {path} that gets its shape from the first batch, so a "
                "rank that is replaced would have no place for what others have: call the model "
                "once with a batch before, or say how many features it takes."
            )
        if tensor.is_nested:
            raise CallError(
                f"State({name}=...) has a {path} that is a nested tensor, which has no one shape, "
                "so it can be neither copied at a commit nor sent: keep a padded tensor and the "
                "lengths in its place, or make it anew in each forward pass."
            )


def check_ended(begun: Mapping[torch.optim.Optimizer, bool]) -> None:
    """Refuse a commit after an optimizer's half-done step; `begun` says which steps ended.

    Raises:
        CallError: an optimizer did not end its step.
    """
    for optimizer, has_ended in begun.items():
        if not has_ended:
            raise CallError(
                f"{type(optimizer).__name__}.step() ended with an exception, so this step is half "
                "done and cannot be committed: let the exception leave train."
            )


def check_unknown(optimizer: torch.optim.Optimizer, known: Container[int]) -> None:
    """Refuse the step of an optimizer that the state does not hold, but for an attack's.

    Raises:
        CallError: the optimizer trains parameters that may be the state's.
    """
    if not _is_strange(optimizer, known):
        raise CallError(
            f"A {type(optimizer).__name__} that elasticd does not know changes parameters: "
            "give it to State(...), or, for one step only, have it change plain tensors."
        )


def check_inner(
    outer: torch.optim.Optimizer, inner: torch.optim.Optimizer, known: Container[int]
) -> None:
    """Refuse a step that is made of the step of an optimizer which the state does not hold.

    The inner optimizer's state (its momentum, say) would be lost where the outer one does not save
    it.

    Raises:
        CallError: the inner optimizer has a state, and trains parameters of the `State`.
    """
    saved = {id(each) for entry in outer.state.values() for each in _tensors_of(entry)}
    kept = [each for entry in inner.state.values() for each in _tensors_of(entry)]
    if all(id(each) in saved for each in kept) or _is_strange(inner, known):
        return
    what, part = type(outer).__name__, type(inner).__name__
    raise CallError(
        f"The step of {what} is made of that of a {part}, which keeps a state of its own that no "
        f"entry of State holds: give State(...) that {part}, too, next to the {what}."
    )


def _is_strange(optimizer: torch.optim.Optimizer, known: Container[int]) -> bool:
    """Return whether an optimizer trains nothing of the state: only plain tensors, as for an
    adversarial attack.

    `known` has the ids of the state's parameters. A model that was forgotten has Parameters.
    """
    return all(
        not isinstance(each, torch.nn.Parameter) and id(each) not in known
        for each in parameters_of(optimizer)
    )


def _tensors_of(entry: object) -> list[torch.Tensor]:
    values = entry.values() if isinstance(entry, dict) else ()
    return [each for each in values if isinstance(each, torch.Tensor)]


def check_step(optimizer: torch.optim.Optimizer, *, is_on_gpu: bool) -> None:
    """Refuse an optimizer's step if elasticd could not know whether it was made.

    Raises: CallError: the message says what to do instead.
    """
    if is_on_gpu and torch.cuda.is_current_stream_capturing():
        raise CallError(
            f"{type(optimizer).__name__}.step() is captured in a CUDA graph, and a replay changes "
            "parameters without anybody seeing it: capture forward and backward only, and call "
            "the optimizer outside of the graph."
        )
    if torch._C._current_graph_task_id() != -1:
        raise CallError(
            f"{type(optimizer).__name__}.step() was called during backward, when the gradients of "
            "other parameters are not there yet: call it after backward, once for all parameters."
        )


def warn_of_no_commit(steps: int) -> None:
    """Say that a script has made so many optimizer steps and no commit."""
    sys.stderr.write(
        f"elasticd: {steps} optimizer steps and no commit: what is not committed is done again "
        "after a failure. Call state.commit() after optimizer.step().\n"
    )


def _refuse(name: str, value: object, part: object, why: str, instead: str) -> None:
    what = type(part).__name__
    holds = f"holds a {what}" if part is not value else f"is a {what}"
    raise CallError(f"State({name}=...) {holds}, {why}: {instead}.")


def _is_loader(value: Any) -> bool:
    """Return whether it yields batches and knows its position."""
    has_state = hasattr(value, "state_dict") and not isinstance(value, torch.nn.Module)
    is_iterable = hasattr(type(value), "__iter__") or hasattr(type(value), "__next__")
    return has_state and is_iterable and (hasattr(value, "dataset") or hasattr(value, "sampler"))


def _check_tensors(name: str, value: object, tensors: Iterable[torch.Tensor]) -> None:
    for tensor in tensors:
        if getattr(tensor, "_fsdp_flattened", False):
            _refuse(name, value, value, "whose parameters FSDP1 has flattened and cut", _FSDP2)
        if tensor.device.type not in _DEVICES:
            why = f"with a tensor on {tensor.device}, which elasticd does not know"
            _refuse(name, value, value, why, "train on CUDA devices or on the CPU")


def _check_placements(name: str, module: torch.nn.Module) -> None:
    """Accept the placements of `fully_shard`: one dimension of shards, and one of replicas."""
    spread = [(path, each) for path, each in module.named_parameters() if is_distributed(each)]
    if not spread:
        return
    import torch.distributed as dist
    from torch.distributed.fsdp import FSDPModule

    size = dist.get_world_size() if dist.is_initialized() else 1
    ours = {
        id(parameter)
        for part in module.modules()
        if isinstance(part, FSDPModule)
        for parameter in part.parameters()
    }
    for path, tensor in spread:
        mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
        kinds = sorted(_kinds(tensor))
        if id(tensor) not in ours:
            odd = "sharded by something else than fully_shard, as tensor parallelism does"
        elif kinds not in (["shard"], ["replicate"], ["replicate", "shard"], []):
            odd = f"spread over a mesh of {tuple(mesh.shape)} as {placements}"
        elif mesh.size() != size:
            odd = f"spread over {mesh.size()} of {size} ranks"
        else:
            continue
        raise CallError(
            f"State({name}=...) has a parameter {path} that is {odd}, and elasticd gives each rank "
            f"its own samples and random numbers: {_FSDP2}, over one or two dimensions that have "
            f"all ranks; for other ways {_RESTART}."
        )


def _kinds(tensor: Any) -> Iterator[str]:
    """Return what happens along each dimension of a mesh that has more than one place."""
    for size, placement in zip(tensor.device_mesh.shape, tensor.placements, strict=True):
        if size > 1:
            yield "replicate" if placement.is_replicate() else type(placement).__name__.lower()
