"""`elasticd.checkpoint.save` and `load`: for scripts that are started again after a failure.

Every rank calls them, as with torch.distributed.checkpoint, and no collective is made: a rank
learns from the log which checkpoint the others restored. `save` costs a copy of this rank's share
into shared memory; the keeper does the rest, also when the script dies meanwhile.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from elasticd.checkpoint.commit.fail_point import arm_fail_point
from elasticd.checkpoint.commit.fetch import extents
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import LAST_STEP
from elasticd.checkpoint.format.manifest import Manifest
from elasticd.checkpoint.format.piece_rows import selected
from elasticd.checkpoint.format.share_layout import CUT_BYTES
from elasticd.errors import CallError
from elasticd.keeper.client import Client
from elasticd.keeper.wire import message as ms
from elasticd.records.checkpoint import Every
from elasticd.script.progress import saved
from elasticd.script.save_reminder import needs_none
from elasticd.tensors.local_shard import common, local_part, local_rows
from elasticd.tensors.tensor_spec import described, dtype_of, views
from elasticd.tensors.tree import Tree, flatten, unflatten
from elasticd.train.load_into import check_fits, fill
from elasticd.train.restore.model_match import all_damaged, matched
from elasticd.train.save.keeper_connection import Keeper
from elasticd.train.save.next_keeper import NextKeeper
from elasticd.train.save.same_tensors import SavedTensors, tell_step, wait_for_step
from elasticd.train.save.snapshot_taker import SnapshotTaker
from elasticd.train.tcp_store.broadcast import broadcast_from_first

__all__ = ["load", "save", "wait"]

ROOT = "state"
UPLOAD_WAIT_LIMIT_S = 300.0
"""How long rank 0 waits for what is being saved before it looks for the newest checkpoint."""
JOIN_LIMIT_S = 600.0
"""How long a rank waits for rank 0 to say which checkpoint is restored, while nobody reads one."""


def save(state_dict: Mapping[str, Any], step: int) -> bool:
    """Save a state; returns when this rank's share is copied, long before it is durable.

    Called by all ranks with the same step, which grows from call to call. Tensors must be equal on
    all ranks, or DTensors; of what is no tensor rank 0's counts. False: not now, because the one
    before is still on its way, or because there is no memory; the training goes on.

    Raises:
        CallError: not started with `elasticd run --checkpoint URL`, or called wrongly.
    """
    if type(step) is not int or step < 0:
        raise CallError(f"elasticd.checkpoint.save wants a step, a whole number, not {step!r}.")
    if step > LAST_STEP:
        raise CallError(
            "elasticd.checkpoint.save wants a step below 10**15, and this one is larger: give the "
            "number of the step, not a time."
        )
    needs_none()
    began_s = time.monotonic()
    is_taken = _job().save(_checked("save", state_dict), step)
    saved(step, time.monotonic() - began_s)
    return is_taken


def load(into: MutableMapping[str, Any] | None = None) -> tuple[Any, int] | None:
    """Return the newest good state and its step, the same on all ranks; None: there is none yet.

    To be called by all ranks, once, before the first `save`. Without `into` the tensors are whole
    and on the CPU. With it all of it is filled in place, and it is returned: its tensors (a DTensor
    with its own part, whatever the placement was when it was saved), and every number, text and
    list. Of the topmost names it may have some only, below them it must have all tensors.

    Raises:
        CallError: not started with `elasticd run --checkpoint URL`, the storage cannot be used, the
            checkpoint is of another model, or all checkpoints are damaged.
    """
    if into is not None and not isinstance(_checked("load", into), MutableMapping):
        raise CallError(
            f"elasticd.checkpoint.load fills `into` in place, and a {type(into).__name__} cannot "
            "be changed: give a dict."
        )
    found = _job().load(into)
    if found is not None:
        needs_none()
    return found


def wait(timeout_s: float = 600.0) -> bool:
    """Wait until what was saved last is durable; True if it is by then, or was only loaded.

    For the end of a script, and to save again what `save` had no room for.

    Raises:
        CallError: not started with `elasticd run --checkpoint URL`, or called wrongly.
    """
    if not isinstance(timeout_s, int | float) or math.isnan(timeout_s):
        raise CallError(f"elasticd.checkpoint.wait wants a number of seconds, not {timeout_s!r}.")
    return _job().wait(timeout_s)


class _Plain:
    """A state dict in place of a `State`."""

    def __init__(self) -> None:
        self.step = 0
        self.value: Any = None

    @property
    def position(self) -> tuple[int, int]:
        return self.step, 0

    def tree(self) -> Tree:
        return flatten(ROOT, self.value)


class _Job:
    """This process's part in the job's checkpoints."""

    def __init__(self, env: Mapping[str, str]) -> None:
        name = env.get("ELASTICD_KEEPER", "")
        if not name:
            raise CallError(
                "elasticd.checkpoint.save and load need to know where to: start the script with "
                "`elasticd run --checkpoint URL`."
            )
        if "RANK" not in env:
            raise CallError(
                "elasticd.checkpoint.save and load are for scripts that are started again after a "
                "failure; in elasticd.run the state is saved and restored by itself."
            )
        self._rank, self._size = int(env["RANK"]), int(env["WORLD_SIZE"])
        self._generation = int(env.get("ELASTICD_GENERATION", "1"))
        self._nodes = _nodes(env, self._rank, self._size)
        self._calls = 0
        """How often `save` was called in this world; all ranks make the same calls."""
        self._published = ""
        """The digest of the tensors that other ranks can look up."""
        self._is_as_loaded = False
        """True if nothing was saved since the load of a checkpoint, which is durable."""
        self._state = _Plain()
        # What else than an optimizer changes tensors between two calls is not known here.
        self._saving = SnapshotTaker(Keeper(name).connect, Every(), "blocking")
        self._saving.is_on_one_node = int(env.get("LOCAL_WORLD_SIZE", "0")) == self._size
        self._saving.use(
            self._state,
            _are_large,
            rank=self._rank,
            generation=self._generation,
            nodes=self._nodes,
        )

    def save(self, value: Any, step: int) -> bool:
        if not self._saving.run:
            self._begin(0, 0)
        if step <= self._saving.saved_step:
            raise CallError(
                f"elasticd.checkpoint.save was called with step {step} after step "
                f"{self._saving.saved_step}: steps must grow."
            )
        self._state.step, self._state.value = step, dict(value)
        try:
            is_taken = self._is_time(step) and self._saving.take(step, is_last=True)
            self._saving.mirror()
            self._is_as_loaded &= not is_taken
            return is_taken
        finally:
            self._state.value = None

    def wait(self, timeout_s: float) -> bool:
        return self._is_as_loaded or self._saving.wait(timeout_s)

    def _is_time(self, step: int) -> bool:
        """Decide on rank 0, so that all save or none; through the store of the process group."""
        if self._size == 1 or not dist.is_initialized():
            return self._saving.is_free()
        store = dist.distributed_c10d._get_default_store()
        self._saving.mirroring = self._saving.mirroring or NextKeeper(
            store, rank=self._rank, generation=self._generation, nodes=self._nodes
        )
        # Numbered, since a step that was not saved may be given again: the answer is another.
        self._calls += 1
        key = f"elasticd/save/{self._generation}/{self._calls}/{step}"
        tensors = SavedTensors(self._state.tree())
        if self._rank == 0 and tensors.digest != self._published:
            tensors.publish(store)
            self._published = tensors.digest
        call = {"generation": self._generation, "call": self._calls, "step": step}
        is_free, digest = _told_by_first(
            store,
            key,
            self._rank,
            self._size,
            self._saving.is_free,
            tensors.digest,
            wait=lambda: wait_for_step(store, key, rank=self._rank, **call),
        )
        if self._rank == 0:
            tell_step(store, **call)
        tensors.check(store, digest, rank=self._rank)
        return is_free

    def load(self, into: MutableMapping[str, Any] | None) -> tuple[Any, int] | None:
        loaded = self._load(self._saving.client, into)
        self._is_as_loaded = loaded is not None
        return loaded

    def _load(
        self, client: Client, into: MutableMapping[str, Any] | None
    ) -> tuple[Any, int] | None:
        if self._rank == 0:
            return self._load_first(client, into)
        joined = client.ask(ms.Join(generation=self._generation, timeout_s=JOIN_LIMIT_S), ms.Joined)
        self._saving.run = joined.run
        if not joined.number:
            return None
        try:
            return self._fill(client, joined.number, into)
        except Damaged as exc:
            # The generation has begun, so the ranks cannot agree on another one any more. The
            # keeper has marked the damage for the next start.
            raise Damaged(
                f"Rank {self._rank} cannot load checkpoint {joined.number}, which rank 0 has "
                f"loaded: {exc} At the next start rank 0 reads this part too, and takes the "
                "checkpoint before if it is damaged. If it takes the same one again, `elasticd "
                f"checkpoint rm URL {joined.number} --force` gives it up."
            ) from exc

    def _load_first(
        self, client: Client, into: MutableMapping[str, Any] | None
    ) -> tuple[Any, int] | None:
        """Find a good checkpoint on rank 0, and write down which: others take the same."""
        below, notes = 0, list[str]()
        while True:
            question = ms.Find(
                below=below, settle_s=UPLOAD_WAIT_LIMIT_S, generation=self._generation
            )
            found = client.ask(question, ms.Found)
            notes += found.notes
            if notes and not found.number:
                raise all_damaged(notes)
            for note in found.notes:
                self._saving.say(note)
            if not found.number:
                self._begin(0, 0)
                return None
            try:
                loaded = self._fill(client, found.number, into)
            except Damaged as exc:
                # The part that is damaged has the step in its path only, with zeros before it.
                notes.append(f"The checkpoint of {found.snapshot} is damaged: {exc}")
                self._saving.say(notes[-1])
                below = found.number
                continue
            self._begin(loaded[1], found.number)
            return loaded

    def _begin(self, step: int, origin: int) -> None:
        """Open the generation on rank 0, which has loaded the checkpoint of this number (0: none);
        the others learn of it.
        """
        client = self._saving.client
        if self._rank == 0:
            question = ms.Open(generation=self._generation, step=step, origin=origin)
            self._saving.run = client.ask(question, ms.Opened).run
        else:
            wait = ms.Join(generation=self._generation, timeout_s=JOIN_LIMIT_S)
            self._saving.run = client.ask(wait, ms.Joined).run
        self._saving.saved_step = max(self._saving.saved_step, step if step else -1)

    def _fill(
        self, client: Client, number: int, into: MutableMapping[str, Any] | None
    ) -> tuple[Any, int]:
        _, memory = client.ask_memory(ms.Read(number=number), ms.Shared)
        assert memory is not None
        manifest = Manifest.from_json(bytes(memory.view))
        header = manifest.header
        step = header.snapshot.step
        if into is None:
            tensors = [torch.empty(each.shape, dtype=dtype_of(each)) for each in header.tensors]
            self._copy(client, number, manifest, tensors)
            self._saving.saved_step = step
            return unflatten(Tree(header.skeleton, tuple(tensors))), step
        own = flatten(ROOT, dict(into))
        places = matched(own, header.tensors, header.snapshot)
        # What is not wanted is an empty tensor here, which tells no more than that it is one.
        absent = torch.empty(0)
        standing = tuple(absent if each is None else each for each in places)
        stored = unflatten(Tree(header.skeleton, standing))
        check_fits(ROOT, into, stored, header.snapshot)
        self._copy(client, number, manifest, places)
        fill(into, stored)
        self._saving.saved_step = step
        return into, step

    def _copy(
        self,
        client: Client,
        number: int,
        manifest: Manifest,
        tensors: Sequence[torch.Tensor | None],
    ) -> None:
        """Fill these tensors, those of the checkpoint in their order; None for unwanted ones."""
        parts = [None if each is None else local_part(each) for each in tensors]
        rows = tuple(local_rows(manifest.pieces, parts))
        _, memory = client.ask_memory(ms.Fetch(number=number, pieces=rows), ms.Shared)
        assert memory is not None
        wanted = selected(manifest, rows)
        _, starts, _ = extents(manifest, wanted)
        found = views(memory.view, manifest.header.tensors, wanted, starts)
        with torch.no_grad():
            for piece, values in zip(wanted, found, strict=True):
                part = parts[piece.tensor]
                pair = common(part, piece.offsets, values) if part is not None else None
                if pair is not None:
                    pair[0].copy_(pair[1])


_JOB: _Job | None = None


def _job() -> _Job:
    global _JOB
    if _JOB is None:
        arm_fail_point(os.environ)
        _JOB = _Job(os.environ)
    return _JOB


def _told_by_first(
    store: Any,
    key: str,
    rank: int,
    size: int,
    decide: Callable[[], bool],
    digest: str,
    *,
    wait: Callable[[], None] = lambda: None,
) -> tuple[bool, str]:
    """Return on all ranks what rank 0 decides and the digest of what it saves."""

    def word() -> str:
        return f"{int(decide())} {digest}"

    told = broadcast_from_first(store, key, rank=rank, size=size, decide=word, wait=wait)
    is_it, theirs = told.split(" ")
    return is_it == "1", theirs


def _checked(what: str, state: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(state, Mapping):
        raise CallError(
            f"elasticd.checkpoint.{what} wants a dict of what is to be saved, not a "
            f"{type(state).__name__}: write {{'model': model.state_dict(), ...}}."
        )
    return state


def _are_large(tree: Tree) -> list[bool]:
    """Return which tensors are cut among the ranks; small ones come whole from rank 0."""
    return [each.nbytes >= CUT_BYTES for each in described(tree)]


def _nodes(env: Mapping[str, str], rank: int, size: int) -> tuple[int, ...]:
    """Return the number of each rank's node, if each node has equally many; otherwise all 0."""
    local = int(env.get("LOCAL_WORLD_SIZE", "1"))
    if size % local or int(env.get("GROUP_RANK", "0")) != rank // local:
        return (0,) * size
    return tuple(each // local for each in range(size))
