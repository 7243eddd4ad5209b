"""Whether a checkpoint fits a state: by name, type and shape of each tensor."""

from collections.abc import Iterable, Sequence

import torch

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Tensor
from elasticd.errors import CallError
from elasticd.tensors.tensor_spec import described
from elasticd.tensors.tree import Tree

__all__ = ["CannotRestore", "all_damaged", "check_none_odd", "matched"]

NAMES_LIMIT = 10


class CannotRestore(CallError):
    """The checkpoints cannot be used by this job: no world of it would do better."""

    ends_job = True
    is_plain = True
    """True if no line of the script is at fault: the sentence is shown without a traceback."""


def matched(own: Tree, tensors: Sequence[Tensor], snapshot: Snapshot) -> list[torch.Tensor | None]:
    """Return for each tensor of a checkpoint the one of the same name here; None if there is none.

    Raises: CannotRestore: a tensor differs, or the checkpoint lacks one; the message names the
        first ten.
    """
    here = {
        each.name: (each, tensor) for each, tensor in zip(described(own), own.tensors, strict=True)
    }
    there = {each.name for each in tensors}
    odd = [
        f"{each.name} is {each.dtype} {list(each.shape)} in the checkpoint and "
        f"{here[each.name][0].dtype} {list(here[each.name][0].shape)} here"
        for each in tensors
        if each.name in here and here[each.name][0] != each
    ]
    odd += [f"{name} is not in the checkpoint" for name in here if name not in there]
    check_none_odd(odd, snapshot)
    return [here[each.name][1].detach() if each.name in here else None for each in tensors]


def check_none_odd(odd: Sequence[str], snapshot: Snapshot) -> None:
    """Raise CannotRestore if `odd` has a sentence about a tensor that differs."""
    if odd:
        more = f", and {len(odd) - NAMES_LIMIT} more" if len(odd) > NAMES_LIMIT else ""
        raise CannotRestore(
            f"The checkpoint of {snapshot} is of another model: "
            f"{'; '.join(odd[:NAMES_LIMIT])}{more}. Build the model it was saved from, or give "
            "another --checkpoint."
        )


def all_damaged(notes: Iterable[str]) -> CannotRestore:
    """Return the refusal to begin anew where there are checkpoints, all of them damaged.

    The new training would write to the same place, and retention would delete the old checkpoints,
    which may be whole: an older elasticd than the one that wrote them cannot read any.
    """
    return CannotRestore(
        f"None of the checkpoints can be read: {' '.join(notes)} Look at them with "
        "`elasticd checkpoint verify URL --all`; to begin anew, give another URL."
    )
