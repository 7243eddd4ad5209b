"""Checks whether a state dict and a checkpoint fit, and lists every difference in one sentence.

torch's planner stops at the first difference, but a user who renamed a layer wants to see all.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata

from elasticd.errors import CallError
from elasticd.tensors.local_shard import memory_of
from elasticd.tensors.tensor_bytes import has_room

__all__ = ["check_fit", "check_planner"]

NAMED = 10


def check_fit(
    state: Mapping[str, Any], metadata: Metadata, *, is_partial: bool = False, where: str
) -> None:
    """Raise CallError unless all of a flat state dict is in the checkpoint, in the same shapes and
    in types that torch converts (a half to a float, but no float to a whole number).

    `is_partial`: names that the checkpoint lacks do not count. `where` names the checkpoint in the
    sentence.
    """
    saved = metadata.state_dict_metadata
    misfits = [
        f"{name} {why}"
        for name, value in state.items()
        if (name in saved or not is_partial) and (why := _misfit(value, saved.get(name)))
    ]
    if not misfits:
        return
    more = f", and {len(misfits) - NAMED} more" if len(misfits) > NAMED else ""
    raise CallError(
        f"{len(misfits)} of {len(state)} values do not fit {where}: "
        f"{', '.join(misfits[:NAMED])}{more}; "
        "build the model and the optimizer as they were when it was saved."
    )


def check_planner(planner: object, metadata: Metadata, where: str) -> None:
    """Check the state dict of a planner, unless it has rules of its own about what fits."""
    if (
        isinstance(planner, DefaultLoadPlanner)
        and type(planner).create_local_plan is DefaultLoadPlanner.create_local_plan
    ):
        check_fit(planner.state_dict, metadata, is_partial=planner.allow_partial_load, where=where)


def _misfit(value: Any, saved: Any) -> str:
    if saved is None:
        return "(not there)"
    if isinstance(saved, BytesStorageMetadata):
        return ""
    if not isinstance(value, torch.Tensor) and not hasattr(value, "__create_chunk_list__"):
        return f"(a tensor there, here {type(value).__name__})"
    if isinstance(value, torch.Tensor) and (why := _unfillable(memory_of(value))):
        return why
    if saved.size != value.size():
        return f"({list(saved.size)} there, here {list(value.size())})"
    there, here = saved.properties.dtype, getattr(value, "dtype", None)
    if isinstance(here, torch.dtype) and not torch.can_cast(there, here):
        return f"({there} there, here {here})"  # It would be cut off, or lose its other half.
    return ""


def _unfillable(here: torch.Tensor) -> str:
    """Say why nothing can be copied into a tensor; torch finds that in the middle of the load."""
    if here.layout is not torch.strided:
        return f"(dense there, here {here.layout})"
    if here.numel() and not has_room(here):
        return "(expanded here, several of its elements are one in memory: give its contiguous())"
    return ""
