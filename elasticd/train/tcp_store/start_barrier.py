"""The start barrier: waits until every rank of a generation is at its store, so that missing ranks
can be named.

Each rank also writes its type of device: a group whose ranks have different backends would never
form, and none of them could say why.
"""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from torch.distributed import DistStoreError

from elasticd.errors import EnvironmentProblem
from elasticd.train.group_broken import GroupBroken

__all__ = ["Arrivals", "gather", "minority_ranks"]

_NAMES = {"cpu": "CPU", "cuda": "GPU"}

_GPU = 1 << 32
"""What a rank with a GPU adds to the count: one number of the store counts both kinds."""


class Arrivals(NamedTuple):
    """The result; both are empty if all ranks are here and alike."""

    missing: tuple[int, ...] = ()
    """The ranks that did not come by the deadline."""
    odd: tuple[int, ...] = ()
    """The ranks that train on another kind of device than most."""

    def check(self, generation: int, rank: int, kind: str, *, is_timed_out: bool) -> None:
        """Raise unless all ranks are here and alike; this one has `rank` and `kind`.

        Raises: GroupBroken: some other ranks did not come in time, or are unlike the rest and end.
        EnvironmentProblem: this rank is unlike the rest.
        """
        if self.missing:
            raise GroupBroken(
                f"Generation {generation} was not formed in time: these ranks did not come: "
                f"{_listed(self.missing)}.",
                self.missing,
                is_timed_out=is_timed_out,
            )
        if rank in self.odd:
            raise EnvironmentProblem(
                f"This rank trains on a {_NAMES[kind]} and most ranks of generation {generation} "
                "do not, so they can form no group: look at the GPUs of its node (nvidia-smi, "
                "rocm-smi), or drain it."
            )
        if self.odd:
            raise GroupBroken(
                f"Generation {generation} was not formed: these ranks do not train on a "
                f"{_NAMES[kind]} as most do, and end: {_listed(self.odd)}."
            )


def gather(store: Any, *, rank: int, size: int, deadline_s: float, kind: str = "cpu") -> Arrivals:
    """Wait for all ranks; `kind` is this rank's type of device.

    The barrier needs two keys, whatever the size of the world: a counter, and a key that the last
    rank sets.
    """
    store.set(f"here/{rank}", kind)
    seen = store.add("here", 1 if kind == "cpu" else 1 + _GPU)
    if seen % _GPU == size:
        is_mixed = seen // _GPU not in (0, size)
        store.set("all-here", "mixed" if is_mixed else "alike")
        return Arrivals(odd=_minority_ranks(store, size)) if is_mixed else Arrivals()
    try:
        left_s = max(0.001, deadline_s - time.monotonic())
        store.wait(["all-here"], timedelta(seconds=left_s))
    except DistStoreError:
        here = [store.check([f"here/{each}"]) for each in range(size)]
        return Arrivals(missing=tuple(each for each, is_here in enumerate(here) if not is_here))
    if store.get("all-here") == b"alike":
        return Arrivals()
    return Arrivals(odd=_minority_ranks(store, size))


def minority_ranks(kinds: Sequence[str]) -> tuple[int, ...]:
    """Return which ranks are not like most; of two equal halves, those without a GPU."""
    counts = Counter(kinds)
    common = max(counts, key=lambda kind: (counts[kind], kind != "cpu"))
    return tuple(rank for rank, kind in enumerate(kinds) if kind != common)


def _minority_ranks(store: Any, size: int) -> tuple[int, ...]:
    return minority_ranks([store.get(f"here/{each}").decode() for each in range(size)])


def _listed(ranks: tuple[int, ...]) -> str:
    return ", ".join(str(rank) for rank in ranks[:20])
