"""Brings back a state that no rank has: from the memory of the nodes, else from storage.

Rank 0 chooses what is restored, so that all restore the same. Each rank then provides a part (what
its own node has in memory, or an equal share of the stored bytes, read and verified by its keeper)
and passes it on to the others: every stored byte is read once. Nothing is written to the state
before all parts are there and good; if one is not, all go back to the checkpoint before.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeGuard

import torch

from elasticd.checkpoint.fetch import extents, size_of
from elasticd.checkpoint.keeper import message as ms
from elasticd.checkpoint.keeper.client import Client
from elasticd.checkpoint.layout import Snapshot
from elasticd.checkpoint.manifest import Manifest, Piece, Tensor
from elasticd.errors import ElasticdError, Unavailable
from elasticd.records.codec import from_plain, to_plain
from elasticd.train.await_keys import await_keys
from elasticd.train.content import dtype_of, views
from elasticd.train.holding import age_of, holders_of
from elasticd.train.interrupt import Interrupted
from elasticd.train.matching import CannotRestore, matched
from elasticd.train.passing import pass_on
from elasticd.train.shard import common, local_part
from elasticd.train.tree import Tree

__all__ = ["Restored", "divided", "restore"]

NAMES_LIMIT = 10
ATTEMPTS_LIMIT = 100
SETTLE_S = 15.0
"""How long a snapshot that is not whole in memory is given to become durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What came of it."""

    run: int
    snapshot: Snapshot | None
    """None: there was nothing, the training begins."""
    epoch: int = 0
    nbytes: int = 0
    place: str = ""
    """memory or storage."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What a person should know; empty if there was nothing."""
        said = " ".join(self.notes)
        if self.snapshot is not None:
            size = self.nbytes / (1 << 20)
            said += (
                f" Restored {self.snapshot} from {self.place}: {size:.1f} MiB in "
                f"{self.seconds:.2f} s."
            )
        return said.strip()


class Restorable(Protocol):
    """What is used of a state."""

    _is_broken: bool

    def _make_room(self) -> None: ...
    def _tree(self) -> Tree: ...
    def _load(self, source: Tree, position: tuple[int, int], /) -> None: ...


class Meeting(Protocol):
    """What is used of a group."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def store(self) -> Any: ...


class _Provided(NamedTuple):
    """What one rank has for all."""

    memory: memoryview
    pieces: tuple[Piece, ...]
    starts: tuple[int, ...]
    keep: object
    """Holds the memory."""


class _Source(NamedTuple):
    """The state as a whole, without its bytes."""

    snapshot: Snapshot
    epoch: int
    skeleton: str
    tensors: tuple[Tensor, ...]


def restore(
    group: Meeting, client: Client, state: Restorable, is_stale: Callable[[], bool]
) -> Restored:
    """Find the newest state and load it on all ranks; the same result on each.

    Raises:
        CannotRestore: it does not fit the model, or the storage refuses.
        Interrupted: the generation ended meanwhile.
    """
    return _Restore(group, client, state, is_stale).go()


class _Restore:
    def __init__(
        self, group: Meeting, client: Client, state: Restorable, is_stale: Callable[[], bool]
    ) -> None:
        self._group, self._client, self._state = group, client, state
        self._is_stale = is_stale
        self._attempt = 0
        self._notes: list[str] = []
        self._is_memory_bad = False

    def go(self) -> Restored:
        began_s = time.monotonic()
        below = 0
        for self._attempt in range(ATTEMPTS_LIMIT):
            chosen = self._choose(below)
            if chosen["place"] == "none":
                run = self._open(0)
                return Restored(run=run, snapshot=None, notes=tuple(self._notes))
            provided, source, why = self._provide(chosen)
            failures = self._exchange("good", why)
            if any(failures):
                below = chosen["number"] or below
                self._is_memory_bad |= chosen["place"] == "memory"
                self._notes += sorted({each for each in failures if each})[:NAMES_LIMIT]
                continue
            assert provided is not None
            source = self._share(source)
            self._load(source, provided, chosen)
            is_stored = chosen["place"] == "storage"
            run = self._open(source.snapshot.step, 0 if is_stored else source.snapshot.run)
            return Restored(
                run=run,
                snapshot=source.snapshot,
                epoch=source.epoch,
                nbytes=sum(each.nbytes for each in source.tensors),
                place=chosen["place"],
                seconds=time.monotonic() - began_s,
                notes=tuple(self._notes),
            )
        raise CannotRestore(
            "None of the checkpoints can be read: see `elasticd checkpoint verify`."
        )

    # --- what all ranks restore -----------------------------------------------------------------

    def _choose(self, below: int) -> dict[str, Any]:
        """Rank 0 decides, from what is in the memory of all nodes and what is stored."""
        held = () if self._is_memory_bad else self._client.ask(ms.List(), ms.Listed).held
        listed = self._exchange("held", json.dumps(to_plain(held)))
        if self._group.rank == 0:
            try:
                chosen = self._chosen(below, listed)
            except ElasticdError as exc:
                chosen = {"place": "error", "why": str(exc)}
            self._say("chosen", json.dumps(chosen))
        chosen = json.loads(self._hear("chosen"))
        if chosen["place"] == "error":
            raise CannotRestore(chosen["why"])
        self._notes += chosen["notes"]
        return dict(chosen)

    def _chosen(self, below: int, listed: Sequence[str]) -> dict[str, Any]:
        every: list[tuple[int, ms.Held]] = [
            (rank, from_plain(ms.Held, one))
            for rank, text in enumerate(listed)
            for one in json.loads(text)
        ]
        in_memory = {held.snapshot for _, held in every}
        found = self._find(ms.Find(below=below), every)
        if any(
            age_of(each) > age_of(found.snapshot) and holders_of(each, every) is None
            for each in in_memory
        ):
            # A node that has left may still be bringing its part.
            found = self._find(ms.Find(below=below, settle_s=SETTLE_S), every)
        stored = age_of(found.snapshot)
        whole = sorted(in_memory, key=age_of, reverse=True)
        for snapshot in whole:
            holders = holders_of(snapshot, every)
            if holders is not None and age_of(snapshot) >= stored:
                return {
                    "place": "memory",
                    "number": 0,
                    "holders": [[rank, to_plain(held)] for rank, held in holders],
                    "notes": found.notes,
                }
        place = "storage" if found.number else "none"
        return {"place": place, "number": found.number, "notes": found.notes}

    def _find(self, question: ms.Find, every: Sequence[tuple[int, ms.Held]]) -> ms.Found:
        """Ask what is stored; a storage that is away is no harm where memory has it all."""
        try:
            return self._client.ask(question, ms.Found)
        except Unavailable as exc:
            if all(holders_of(held.snapshot, every) is None for _, held in every):
                raise
            return ms.Found(number=0, notes=(f"Storage was not asked: {exc}",))

    # --- what this rank brings ------------------------------------------------------------------

    def _provide(
        self, chosen: dict[str, Any]
    ) -> tuple[list[_Provided] | None, _Source | None, str]:
        """Return what this rank has for all, the whole if it knows it, and why it has nothing."""
        try:
            if chosen["place"] == "memory":
                return *self._map(chosen["holders"]), ""
            return *self._fetch(chosen["number"]), ""
        except ElasticdError as exc:
            return None, None, str(exc)

    def _map(self, holders: Iterable[Any]) -> tuple[list[_Provided], _Source | None]:
        provided = []
        source = None
        for rank, plain in holders:
            if rank != self._group.rank:
                continue
            held = from_plain(ms.Held, plain)
            mapped, memory = self._client.ask_memory(ms.Map(held=held), ms.Mapped)
            assert memory is not None
            layout = mapped.layout
            provided.append(_Provided(memory.view, layout.pieces, tuple(layout.starts()), memory))
            if held.share == 0:
                source = _Source(held.snapshot, mapped.epoch, mapped.skeleton, mapped.tensors)
        return provided, source

    def _fetch(self, number: int) -> tuple[list[_Provided], _Source | None]:
        manifest = self._manifest(number)
        first, count = divided(manifest, self._group.size)[self._group.rank]
        pieces = manifest.pieces[first : first + count]
        _, starts, _ = extents(manifest, range(first, first + count))
        _, memory = self._client.ask_memory(
            ms.Fetch(number=number, pieces=tuple(range(first, first + count))), ms.Shared
        )
        assert memory is not None
        header = manifest.header
        source = _Source(header.snapshot, header.epoch, header.skeleton, header.tensors)
        return [_Provided(memory.view, pieces, tuple(starts), memory)], source

    def _manifest(self, number: int) -> Manifest:
        _, memory = self._client.ask_memory(ms.Read(number=number), ms.Shared)
        assert memory is not None
        return Manifest.from_json(bytes(memory.view))

    def _share(self, source: _Source | None) -> _Source:
        """Tell those ranks that do not have it what the whole is."""
        if self._group.size == 1:
            assert source is not None
            return source
        has = self._exchange("source", "yes" if source is not None else "")
        if not all(has):
            teller = has.index("yes")
            if self._group.rank == teller and source is not None:
                self._say("whole", json.dumps(to_plain(tuple(source))))
            snapshot, epoch, skeleton, tensors = json.loads(self._hear("whole"))
            source = _Source(
                from_plain(Snapshot, snapshot),
                epoch,
                skeleton,
                tuple(from_plain(Tensor, each) for each in tensors),
            )
        assert source is not None
        return source

    # --- into the state -------------------------------------------------------------------------

    def _load(self, source: _Source, provided: Sequence[_Provided], chosen: dict[str, Any]) -> None:
        self._state._make_room()
        own = self._state._tree()
        places = [
            place if _is_place(place) else torch.empty(each.shape, dtype=dtype_of(each))
            for each, place in zip(
                source.tensors, matched(own, source.tensors, source.snapshot), strict=True
            )
        ]
        landing = [local_part(place) for place in places]
        self._state._is_broken = True
        mine = [(each.memory, each.pieces, each.starts) for each in provided]
        for memory, pieces, starts in pass_on(self._group, mine):
            parts = views(memory, source.tensors, pieces, starts)
            with torch.no_grad():
                for piece, part in zip(pieces, parts, strict=True):
                    pair = common(landing[piece.tensor], piece.offsets, part)
                    if pair is not None:
                        pair[0].copy_(pair[1])
        position = (source.snapshot.step, source.epoch)
        try:
            self._state._load(Tree(source.skeleton, tuple(places)), position)
        except (RuntimeError, OSError) as exc:
            raise CannotRestore(
                f"The checkpoint of {source.snapshot} does not load into this model: {exc}"
            ) from exc

    def _open(self, step: int, run: int = 0) -> int:
        """Begin to write: from here on no other job and no older generation may.

        With a run that is known this is written down as soon as the storage answers.
        """
        if self._group.rank == 0:
            try:
                opened = self._client.ask(
                    ms.Open(generation=self._group.generation, step=step, run=run), ms.Opened
                )
                self._say("run", json.dumps([opened.run, ""]))
            except ElasticdError as exc:
                self._say("run", json.dumps([0, str(exc)]))
        run, why = json.loads(self._hear("run"))
        if why:
            raise CannotRestore(why)
        return int(run)

    # --- words ----------------------------------------------------------------------------------

    def _exchange(self, what: str, word: str) -> list[str]:
        """Each rank says a word; returns those of all."""
        size, store = self._group.size, self._group.store
        if size == 1:
            return [word]
        store.set(self._key(f"{what}/{self._group.rank}"), word)
        if self._group.rank == 0:
            keys = [self._key(f"{what}/{rank}") for rank in range(size)]
            self._wait(keys)
            self._say(what, json.dumps([each.decode() for each in store.multi_get(keys)]))
        return list(json.loads(self._hear(what)))

    def _say(self, what: str, text: str) -> None:
        self._group.store.set(self._key(what), text)

    def _hear(self, what: str) -> str:
        key = self._key(what)
        self._wait([key])
        text: bytes = self._group.store.get(key)
        return text.decode()

    def _wait(self, keys: list[str]) -> None:
        if not await_keys(self._group.store, keys, self._is_stale):
            raise Interrupted

    def _key(self, what: str) -> str:
        return f"elasticd/restore/{self._attempt}/{what}"


def divided(manifest: Manifest, count: int) -> list[tuple[int, int]]:
    """Divide the pieces among ranks: (first, number) of each, about equally many bytes. Pure."""
    total = sum(size_of(manifest, piece) for piece in manifest.pieces)
    found = []
    first = at = 0
    for rank in range(count):
        end = first
        while end < len(manifest.pieces) and (rank == count - 1 or at < total * (rank + 1) / count):
            at += size_of(manifest, manifest.pieces[end])
            end += 1
        found.append((first, end - first))
        first = end
    return found


def _is_place(tensor: torch.Tensor | None) -> TypeGuard[torch.Tensor]:
    """True if it can be written to: no two of its elements are one, as in an expanded tensor."""
    if tensor is None:
        return False
    here = local_part(tensor).tensor
    rows = zip(here.stride(), here.shape, strict=True)
    return not any(stride == 0 and size > 1 for stride, size in rows)
