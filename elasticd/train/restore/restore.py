"""Brings back a state that no rank has: from all ranks together, the nodes' memory, or storage.

Rank 0 chooses the state, so that all ranks restore the same one. Each rank then provides a part
(what it has itself, what its own node has in memory, or an equal share of the stored bytes, which
its keeper reads and verifies batch after batch) and passes it on to the others: every stored byte
is read once. Of sharded tensors each rank reads, or is sent, its own part only. Nothing counts
until all of it is verified. If a part turns out to be damaged, all take another copy, or go back to
the checkpoint before, which writes over what was written already.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch

from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Tensor
from elasticd.errors import ElasticdError, EnvironmentProblem, Unavailable
from elasticd.keeper.client import KeeperGone
from elasticd.keeper.wire import message as ms
from elasticd.records.codec import from_plain, to_plain
from elasticd.tensors.tensor_spec import dtype_of
from elasticd.tensors.tree import Tree, paths
from elasticd.train.restore.checkpoint_choice import choose_checkpoint
from elasticd.train.restore.checkpoint_stream import StreamedPieces, mapped
from elasticd.train.restore.exclusions import Exclusions
from elasticd.train.restore.keeper_port import KeeperMemoryPort
from elasticd.train.restore.model_match import CannotRestore, all_damaged, matched
from elasticd.train.restore.piece_copy import PieceDestinations, is_place
from elasticd.train.restore.restore_result import RestoreResult
from elasticd.train.restore.stored_checkpoint import StoredCheckpoint
from elasticd.train.shards.local_shards import Remnant
from elasticd.train.shards.shard_cover import ShardCover
from elasticd.train.shards.shard_exchange import (
    ShardBox,
    all_boxes,
    compact,
    packed,
    redistribute,
    spread_of,
)
from elasticd.train.shards.share_broadcast import BroadcastFailed, Load, broadcast_loads
from elasticd.train.tcp_store.exchange import ExchangeGroup, StoreExchange

__all__ = ["RestoreResult", "SurvivingState", "restore"]

NAMES_LIMIT = 10
ATTEMPTS_LIMIT = 100


class Restorable(Protocol):
    """The parts of a state that a restore uses."""

    is_broken: bool

    def make_room(self) -> None: ...
    def tree(self) -> Tree: ...
    def retie(self, skeleton: str, /) -> None: ...
    def load(self, source: Tree, position: tuple[int, int], /) -> None: ...


class SurvivingState(NamedTuple):
    """A state that the living ranks still have in their memory."""

    survivors: ShardCover
    remnant: Remnant | None
    """What this rank has of it."""
    run: int
    """The run of the checkpoints; 0 if not known."""


class _Source(NamedTuple):
    """The state as a whole, without its bytes."""

    snapshot: Snapshot
    epoch: int
    skeleton: str
    tensors: tuple[Tensor, ...]


def restore(
    group: ExchangeGroup,
    client: KeeperMemoryPort,
    state: Restorable,
    is_stale: Callable[[], bool],
    alive: SurvivingState | None = None,
) -> RestoreResult:
    """Find the newest state and load it on all ranks; return the same result on each rank.

    `alive` is what `survey` found; it is None on all ranks or on none.

    Raises:
        CannotRestore: the state does not fit the model, or the storage refuses.
        KeeperGone: this rank's keeper is gone; the others wait for the generation's end.
        Interrupted: the generation ended meanwhile.
    """
    return _Restore(group, client, state, is_stale, alive).go()


class _Restore:
    def __init__(
        self,
        group: ExchangeGroup,
        client: KeeperMemoryPort,
        state: Restorable,
        is_stale: Callable[[], bool],
        alive: SurvivingState | None,
    ) -> None:
        self._group, self._client, self._state, self._alive = group, client, state, alive
        self._is_stale = is_stale
        self._talk = StoreExchange(group, "elasticd/restore/0", is_stale)
        self._notes: list[str] = []
        self._out = Exclusions()
        self._is_memory_bad = False
        self._is_away = False
        """True if the storage did not answer this rank last; False if something is damaged."""
        self._bad: set[ms.Held] = set()
        """What this rank found damaged in its node's memory; another may have the same share."""

    def go(self) -> RestoreResult:
        began_s = time.monotonic()
        for attempt in range(ATTEMPTS_LIMIT):
            self._talk = StoreExchange(self._group, f"elasticd/restore/{attempt}", self._is_stale)
            chosen = self._choose()
            if chosen["place"] == "none":
                if self._out.below or chosen["notes"]:
                    break
                run = self._open(0)
                return RestoreResult(run=run, snapshot=None, notes=tuple(self._notes))
            provided, source, why = self._provide(chosen)
            if self._has_failed("good", why, chosen):
                continue
            source = self._share(source)
            places = self._places(source)
            why = self._land(source, places, provided)
            if self._has_failed("landed", why, chosen):
                continue
            self._load(source, places)
            run = self._open(source.snapshot.step, self._run_of(chosen["place"], source))
            return RestoreResult(
                run=run,
                snapshot=source.snapshot,
                epoch=source.epoch,
                nbytes=sum(each.nbytes for each in source.tensors),
                place=chosen["place"],
                seconds=time.monotonic() - began_s,
                notes=tuple(self._notes),
            )
        raise all_damaged(self._notes)

    def _has_failed(self, what: str, why: str, chosen: dict[str, Any]) -> bool:
        """Tell all ranks whether this rank has met an error; return whether any rank has.

        Raises: CannotRestore: the storage does not answer.
        """
        failures = self._talk.exchange(what, why)
        if not any(failures):
            return False
        is_away = False
        if chosen["place"] == "storage":
            away = self._talk.exchange(f"{what}: away", "yes" if self._is_away else "")
            is_away = all(yes for yes, each in zip(away, failures, strict=True) if each)
        out = self._out
        out.note(what, place=chosen["place"], number=chosen["number"], is_away=is_away)
        if out.is_storage_away:
            raise CannotRestore(next(each for each in failures if each))
        self._is_memory_bad |= out.is_memory_out
        self._alive = None if out.are_ranks_out else self._alive
        self._notes += sorted({each for each in failures if each})[:NAMES_LIMIT]
        return True

    # --- what all ranks restore -----------------------------------------------------------------

    def _choose(self) -> dict[str, Any]:
        """Decide on rank 0, from the snapshots in the nodes' memory and the stored ones."""
        held = () if self._is_memory_bad else self._client.ask(ms.List(), ms.Listed).held
        listed = self._talk.exchange("held", json.dumps(to_plain((held, tuple(self._bad)))))
        if self._group.rank == 0:
            rows = [json.loads(text) for text in listed]
            bad = [one for _, damaged in rows for one in damaged]  # No rank maps the same memory.
            every = [
                (rank, from_plain(ms.Held, one))
                for rank, (own, _) in enumerate(rows)
                for one in own
                if one not in bad
            ]
            alive = self._alive.survivors.label.snapshot if self._alive is not None else None
            try:
                choice = choose_checkpoint(self._client, every, below=self._out.below, alive=alive)
            except KeeperGone:
                raise  # The next world asks one that lives; the job must not end for this.
            except ElasticdError as exc:
                choice = {"place": "error", "why": str(exc)}
            self._talk.send("chosen", json.dumps(choice))
        chosen: dict[str, Any] = json.loads(self._talk.receive("chosen"))
        if chosen["place"] == "error":
            raise CannotRestore(chosen["why"])
        self._notes += chosen["notes"]
        return chosen

    # --- what this rank brings ------------------------------------------------------------------

    def _provide(
        self, chosen: dict[str, Any]
    ) -> tuple[list[StreamedPieces] | StoredCheckpoint, _Source | None, str]:
        """Return this rank's part for all, the `_Source` if it is known here, and any error."""
        try:
            if chosen["place"] == "ranks":
                return *self._pack(), ""
            if chosen["place"] == "memory":
                return *self._map(chosen["holders"]), ""
            return *self._fetch(chosen["number"]), ""
        except ElasticdError as exc:
            if chosen["place"] == "storage":
                self._look_at(exc)
            self._is_memory_bad |= chosen["place"] == "memory" and not isinstance(exc, Damaged)
            return [], None, str(exc)

    def _look_at(self, exc: ElasticdError) -> None:
        """Note whether the storage does not answer.

        Raises: KeeperGone: this rank's keeper is at fault, not the stored state.
        """
        if isinstance(exc, KeeperGone):
            raise exc
        self._is_away = isinstance(exc, Unavailable | EnvironmentProblem)

    def _pack(self) -> tuple[list[StreamedPieces], _Source | None]:
        assert self._alive is not None
        survivors, remnant, _ = self._alive
        if remnant is None:
            return [], None
        rank = self._group.rank
        provided = StreamedPieces(*remnant.pack(survivors.given.get(rank, ())), keep=remnant)
        if rank != survivors.teller:
            return [provided], None
        label = survivors.label
        tensors = remnant.inventory.tensors
        return [provided], _Source(label.snapshot, label.epoch, remnant.skeleton, tensors)

    def _map(self, holders: Iterable[Any]) -> tuple[list[StreamedPieces], _Source | None]:
        provided = []
        source = None
        for rank, plain in holders:
            if rank != self._group.rank:
                continue
            held = from_plain(ms.Held, plain)
            mapping, brought = mapped(self._client, held)
            provided.append(brought._replace(check=partial(self._check, held, brought.check)))
            if held.share == 0:
                source = _Source(held.snapshot, mapping.epoch, mapping.skeleton, mapping.tensors)
        return provided, source

    def _check(self, held: ms.Held, check: Callable[[], None]) -> None:
        try:
            check()
        except Damaged:
            self._bad.add(held)
            raise

    def _fetch(self, number: int) -> tuple[StoredCheckpoint, _Source | None]:
        stored = StoredCheckpoint.opened(self._client, number)
        header = stored.manifest.header
        return stored, _Source(header.snapshot, header.epoch, header.skeleton, header.tensors)

    def _share(self, source: _Source | None) -> _Source:
        """Send the `_Source` to the ranks that do not have it."""
        if self._group.size == 1:
            assert source is not None
            return source
        has = self._talk.exchange("source", "yes" if source is not None else "")
        if not all(has):
            teller = has.index("yes")
            if self._group.rank == teller and source is not None:
                self._talk.send("whole", json.dumps(to_plain(tuple(source))))
            snapshot, epoch, skeleton, tensors = json.loads(self._talk.receive("whole"))
            source = _Source(
                from_plain(Snapshot, snapshot),
                epoch,
                skeleton,
                tuple(from_plain(Tensor, each) for each in tensors),
            )
        assert source is not None
        return source

    # --- into the state -------------------------------------------------------------------------

    def _places(self, source: _Source) -> list[torch.Tensor]:
        """Return the destination of each tensor: the state's own tensor where that is possible.

        Raises: CannotRestore: the model is another one.
        """
        self._state.retie(source.skeleton)
        if not {each.name for each in source.tensors} <= set(paths(own := self._state.tree())):
            self._state.make_room()  # Optimizers take a step for it, which takes time.
            own = self._state.tree()
        places = matched(own, source.tensors, source.snapshot)
        return [
            place if is_place(place) else torch.empty(each.shape, dtype=dtype_of(each))
            for each, place in zip(source.tensors, places, strict=True)
        ]

    def _land(
        self,
        source: _Source,
        places: Sequence[torch.Tensor],
        provided: list[StreamedPieces] | StoredCheckpoint,
    ) -> str:
        """Copy all bytes to their places; return why the copy failed, if this rank knows.

        Tensors that all ranks hold reach all ranks from the rank that has or reads them; of sharded
        tensors each rank gets only its own part.
        """
        landing = PieceDestinations(source.tensors, places)
        self._state.is_broken = True
        boxes = all_boxes(self._group, source.tensors, landing.here)
        is_sharded = spread_of(source.tensors, boxes)
        try:
            for load in self._loads(landing, source, provided, boxes, is_sharded):
                landing.put(*load)
            if not isinstance(provided, StoredCheckpoint):
                for brought in provided:
                    brought.check()
            landing.check_complete()
        except BroadcastFailed:
            return ""
        except ElasticdError as exc:
            if isinstance(provided, StoredCheckpoint):
                self._look_at(exc)
            return str(exc)
        return ""

    def _loads(
        self,
        landing: PieceDestinations,
        source: _Source,
        provided: list[StreamedPieces] | StoredCheckpoint,
        boxes: Sequence[Sequence[ShardBox]],
        is_sharded: Sequence[bool],
    ) -> Iterator[Load]:
        """Yield all bytes that this rank copies.

        Transfers in which every rank takes part come first: then a rank that fails in its own part
        leaves nobody waiting.
        """
        group = self._group
        if isinstance(provided, StoredCheckpoint):
            alike, own = provided.divided(group, landing.here, is_sharded)
            for_all = provided.read(self._client, alike)
            yield from broadcast_loads(group, (compact(each, source.tensors) for each in for_all))
            yield from provided.read(self._client, own)
            return
        parts = [packed(each[:3], source.tensors, is_sharded) for each in provided]
        alike_loads = [alike for alike, _ in parts if alike[1]]
        yield from broadcast_loads(group, alike_loads)
        if any(is_sharded):
            spread = [spread for _, spread in parts if spread[1]]
            yield from redistribute(group, spread, source.tensors, boxes)

    def _load(self, source: _Source, places: Sequence[torch.Tensor]) -> None:
        position = (source.snapshot.step, source.epoch)
        try:
            self._state.load(Tree(source.skeleton, tuple(places), is_placed=False), position)
        except (RuntimeError, OSError) as exc:
            raise CannotRestore(
                f"The checkpoint of {source.snapshot} does not load into this model: {exc}"
            ) from exc

    def _run_of(self, place: str, source: _Source) -> int:
        """Return the number of the run that goes on; 0 if the keeper must find it out."""
        if place == "ranks":
            return self._alive.run if self._alive is not None else 0
        return source.snapshot.run if place == "memory" else 0

    def _open(self, step: int, run: int = 0) -> int:
        """Begin to write: from here on no other job and no older generation may write.

        If the run is known, the entry is written as soon as the storage answers.
        """
        if self._group.rank == 0:
            try:
                opened = self._client.ask(
                    ms.Open(generation=self._group.generation, step=step, run=run), ms.Opened
                )
                self._talk.send("run", json.dumps([opened.run, ""]))
            except KeeperGone:
                raise
            except ElasticdError as exc:
                self._talk.send("run", json.dumps([0, str(exc)]))
        run, why = json.loads(self._talk.receive("run"))
        if why:
            raise CannotRestore(why)
        return int(run)
