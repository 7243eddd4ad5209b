"""Makes torch forget the device meshes of generations that are over.

torch caches what it found out about operations on DTensors, by their arguments, and two meshes of
one shape are equal to it, although this process may have had another rank in the older one and its
groups are gone. torch then returns a tensor on the old mesh: the right numbers, marked as another
rank's part of the whole, and saved as that.
"""

import sys
from operator import attrgetter

__all__ = ["forget_meshes"]

_CACHES = (
    ("torch.distributed.tensor._api",
     "DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache_clear"),
    ("torch.distributed.tensor._api",  # torch 2.9
     "DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache.cache_clear"),
    ("torch._C", "_clear_DTensor_sharding_propagator_cache"),
    ("torch.distributed.tensor._redistribute", "_gen_transform_infos.cache_clear"),
    ("torch.distributed.tensor._redistribute", "clear_redistribute_planner_cache"),
)  # fmt: skip
"""None of them is documented, and not every version of torch has all."""


def forget_meshes() -> None:
    """Clear the caches.

    Call it in the training thread, whose caches these are, before a generation's meshes are made
    and after those of the one before were used last.
    """
    if "torch.distributed.tensor" not in sys.modules:
        return  # Then there is no DTensor.
    for module, path in _CACHES:
        try:
            clear = attrgetter(path)(sys.modules[module])
        except (KeyError, AttributeError):
            continue
        clear()
