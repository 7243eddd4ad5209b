"""What looks at each commit of a generation: the comparison of replicas, the checks of attributes
that nobody saves and of the modules' structure, and the snapshots."""

from collections.abc import Callable

import torch

from elasticd.tensors.fingerprint import owned_tensors
from elasticd.train.introspection.structure_change import StructureCheck
from elasticd.train.introspection.unsaved_attributes import UnsavedAttributes
from elasticd.train.state.entry import unwrapped
from elasticd.train.state.state_core import StateCore
from elasticd.train.sync.replica_check import ReplicaCheck, ReplicaStore
from elasticd.train.world import World

__all__ = ["commit_hook"]

Hook = Callable[[int], None]
"""A function that gets the step of a commit which has just been made."""


def commit_hook(
    store: ReplicaStore,
    world: World,
    state: StateCore,
    *,
    is_over: Callable[[], bool],
    every: int | None,
    unsaved: UnsavedAttributes,
    save: Hook | None,
) -> Hook | None:
    """Return what the session calls at the end of each commit; None if nothing looks at commits.

    Args:
        store: the generation's store, over which replicas are compared.
        is_over: returns whether the generation has ended before its last commit.
        every: the number of steps from one comparison to the next; 0 for none, None for a number
            that the comparison chooses.
        unsaved: looks for attributes that no state_dict holds; the first rank reports them.
        save: takes a snapshot if one is due; None without checkpoints.
    """
    hooks: list[Hook] = []
    guard = state.guard
    if every != 0 and world.size > 1:
        check = ReplicaCheck(
            store,
            rank=world.rank,
            size=world.size,
            step=state.step,
            every=every or 0,
            tensors=lambda: owned_tensors(guard.optimizers, guard.names),
            is_over=is_over,
        )
        hooks.append(check.compare)
    if world.rank == 0 and not unsaved.is_done:
        entries = (state.objects | state.built).items()
        kinds = torch.nn.Module | torch.optim.Optimizer
        unsaved.begin({name: entry for name, entry in entries if isinstance(entry, kinds)})
        hooks.append(unsaved.check)
    if modules := state.of_kind(torch.nn.Module):
        # The script's own inside those of torch.compile: the state has no others.
        inner = map(unwrapped, modules)
        hooks.append(StructureCheck(inner, state.check).look)
    if save is not None:
        hooks.append(save)
    if len(hooks) < 2:
        return hooks[0] if hooks else None

    def call_all(step: int) -> None:
        for hook in hooks:
            hook(step)

    return call_all
