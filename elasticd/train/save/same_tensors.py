"""Checks that all ranks save the same tensors, at the same step.

A checkpoint is assembled from the ranks' shares by the numbers of tensors. If one rank has another
order or other shapes (its own part of an optimizer's state, say), the checkpoint would mix parts of
different tensors, with checksums that are right.
"""

import json
import time
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Protocol

import torch.distributed as dist

from elasticd.errors import CallError
from elasticd.tensors.tree import Tree, first_difference, paths

__all__ = ["SavedTensors", "tell_step", "wait_for_step"]

LOOK_S = 1.0
"""How often a rank that waits for rank 0 looks whether that is at another step."""


class DigestStore(Protocol):
    """The methods of a store that the check uses."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...


class SavedTensors:
    """The tensors that one rank is about to save: their names, types and shapes."""

    def __init__(self, tree: Tree) -> None:
        named = zip(paths(tree), tree.tensors, strict=True)
        self._lines = [f"{path} {each.dtype} {list(each.shape)}" for path, each in named]
        text = "\n".join(self._lines)
        self.digest = blake2b(text.encode(), digest_size=16).hexdigest()

    def publish(self, store: DigestStore) -> None:
        """Write rank 0's list of tensors for the other ranks, once for each digest."""
        store.set(_key(self.digest), json.dumps(self._lines))

    def check(self, store: DigestStore, digest: str, *, rank: int) -> None:
        """Compare this rank's tensors with rank 0's, whose digest is `digest`.

        Raises:
            CallError: they differ; the message names the first tensor that does.
        """
        if digest == self.digest:
            return
        theirs = json.loads(store.get(_key(digest)))
        names = (f"rank {rank}", "rank 0")
        raise CallError(
            f"elasticd.checkpoint.save was given other tensors on rank {rank} than on rank 0: "
            f"{first_difference(self._lines, theirs, names=names)} Give it the same on all ranks, "
            "in the same order, and what each rank has a part of as DTensors; save a part that is "
            "a plain tensor yourself."
        )


def _key(digest: str) -> str:
    return f"elasticd/save/tensors/{digest}"


def tell_step(store: DigestStore, generation: int, call: int, step: int) -> None:
    """Write on rank 0, when others can read its answer, in which call of `save` it is."""
    store.set(_step_key(generation), f"{call} {step}")


def wait_for_step(
    store: Any, key: str, *, rank: int, generation: int, call: int, step: int
) -> None:
    """Wait for rank 0's answer to this call of `save`, which is under `key`, made of the step.

    Raises:
        CallError: rank 0 gave another step in its call of this number.
    """
    deadline_s = time.monotonic() + store.timeout.total_seconds()
    where = _step_key(generation)
    while True:
        try:
            store.wait([key], timedelta(seconds=LOOK_S))
            return
        except dist.DistStoreError:
            if time.monotonic() > deadline_s:
                raise
        if not store.check([where]):
            continue
        theirs, their_step = map(int, store.get(where).split())
        # It writes this after its answer, so an answer that is not there now never comes.
        if theirs >= call and not store.check([key]):
            what = f"step {their_step}" if theirs == call else "another step"
            raise CallError(
                f"elasticd.checkpoint.save was called with step {step} on rank {rank} and with "
                f"{what} on rank 0, both in their call number {call} of this world: call it on all "
                "ranks with the same steps."
            )


def _step_key(generation: int) -> str:
    return f"elasticd/save/{generation}/step"
