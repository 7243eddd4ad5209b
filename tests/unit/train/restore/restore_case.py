"""Checkpoints in storage and snapshots in memory, and a state that is restored from them."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from elasticd.checkpoint.commit.fetch import extents
from elasticd.checkpoint.format.checksum import block_sums
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import BLOCK_BYTES, Header, Manifest, Part, Piece
from elasticd.checkpoint.format.piece_rows import PieceRows, selected
from elasticd.checkpoint.format.share_layout import Layout, laid_out, shares
from elasticd.errors import ElasticdError, NotFound, Unavailable
from elasticd.keeper.client import KeeperGone
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.wire import message as ms
from elasticd.tensors.tensor_spec import described, views
from elasticd.tensors.tree import Tree, flatten, unflatten

__all__ = ["Group", "Plain", "Stock", "snapshot_of", "state_of"]

EPOCH = 4


def snapshot_of(step: int, *, run: int = 1, generation: int = 1) -> Snapshot:
    return Snapshot(run=run, generation=generation, step=step)


def state_of(step: int) -> dict[str, Any]:
    """What a training has at a step: no two steps have an element in common."""
    base = float(1000 * step)
    return {
        "w": torch.arange(60.0).reshape(10, 6) + base,
        "large": (torch.arange(400_000.0) + base).reshape(1000, 400),
        "b": torch.arange(7, dtype=torch.int64) + 1000 * step,
        "half": torch.full((3,), base).bfloat16(),
        "none": torch.empty(0, 4),
        "count": torch.tensor(step),
        "lr": base,
    }


class Group(NamedTuple):
    """What is used of one; `store` is any store of torch's."""

    rank: int
    size: int
    store: Any
    generation: int = 2


class Plain:
    """A state of plain tensors, as `restore` sees one."""

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self.entries = dict(entries)
        self.position = (0, 0)
        self.is_room_made = False
        self.is_broken = False

    def make_room(self) -> None:
        self.is_room_made = True

    def tree(self) -> Tree:
        return flatten("state", self.entries)

    def retie(self, skeleton: str, /) -> None:
        pass

    def load(self, source: Tree, position: tuple[int, int], /) -> None:
        assert self.is_broken, "what is half loaded must count as broken"
        self.entries, self.position, self.is_broken = unflatten(source), position, False


class _Share(NamedTuple):
    layout: Layout
    data: bytes


class Stock:
    """A keeper whose storage and memory a test fills."""

    def __init__(self, *, holders: int = 2) -> None:
        self.holders = holders
        self.stored: dict[int, Snapshot] = {}
        """Checkpoints by their numbers."""
        self.held: list[ms.Held] = []
        self.settling: dict[int, Snapshot] = {}
        """What becomes durable if somebody waits for it."""
        self.damaged: set[int] = set()
        """Numbers whose bytes are bad, of those in memory the steps."""
        self.flipped: set[ms.Held] = set()
        """What is in memory with a byte that is another than was saved."""
        self.damaged_late: set[int] = set()
        """Numbers of which only the first batch is good."""
        self._stream: tuple[int, list[Sequence[PieceRows]]] = (0, [])
        """What is being read: the number, and the batches that are left."""
        self._ring: SharedMemory | None = None
        self.otherwise: set[int] = set()
        """Shares in memory that were cut as if all ranks did not have `large` alike."""
        self.gone_at: type | None = None
        """The question at which the keeper dies."""
        self.silent: dict[int, int] = {}
        """How often the storage does not answer when this number is read."""
        self.refuses: str = ""
        self.is_away = False
        self.notes: tuple[str, ...] = ()
        self.asked: list[Any] = []

    def store(self, *steps: int) -> None:
        self.stored |= {10 + step: snapshot_of(step) for step in steps}

    def hold(self, step: int, *held: int, generation: int = 1) -> None:
        """Have these shares of a snapshot in memory."""
        snapshot = snapshot_of(step, generation=generation)
        self.held += [
            ms.Held(snapshot=snapshot, share=share, shares=self.holders, holder=0, nbytes=1)
            for share in held
        ]

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.asked if type(each) is kind]

    def ask(self, question: Any, kind: type, *, timeout_s: float | None = None) -> Any:
        self.asked.append(question)
        if type(question) is self.gone_at:
            raise KeeperGone("the keeper has gone")
        match question:
            case ms.List():
                return ms.Listed(held=tuple(self.held))
            case ms.Find():
                if self.is_away:
                    raise Unavailable("the storage does not answer")
                if self.refuses:
                    raise ElasticdError(self.refuses)
                if question.settle_s:
                    self.stored |= self.settling
                numbers = [n for n in self.stored if not question.below or n < question.below]
                number = max(numbers, default=0)
                snapshot = self.stored.get(number)
                return ms.Found(number=number, snapshot=snapshot, notes=self.notes)
            case ms.Open():
                return ms.Opened(run=9)
            case ms.Join():
                return ms.Joined(run=9, number=max(self.stored, default=0))
        raise AssertionError(f"not expected: {question}")

    def ask_memory(self, question: Any, kind: type, *, timeout_s: float | None = None) -> Any:
        self.asked.append(question)
        if type(question) is self.gone_at:
            raise KeeperGone("the keeper has gone")
        match question:
            case ms.Read():
                text = self._manifest(question.number)[0].to_json()
                return ms.Shared(size=len(text)), _memory(text)
            case ms.Fetch():
                if question.number in self.damaged:
                    raise Damaged(f"checkpoint {question.number} is damaged")
                return ms.Shared(size=0), _memory(self._fetch(question.number, question.pieces))
            case ms.Stream():
                if self.silent.get(question.number):
                    self.silent[question.number] -= 1
                    raise Unavailable("the storage does not answer")
                if question.number in self.damaged:
                    raise Damaged(f"checkpoint {question.number} is damaged")
                half = -(-len(question.pieces) // 2)
                cut = [question.pieces[:half], question.pieces[half:]]
                self._stream = question.number, [each for each in cut if each]
                self._ring = None
                return self._more()
            case ms.More():
                if self._stream[0] in self.damaged_late:
                    raise Damaged(f"checkpoint {self._stream[0]} is damaged in the middle")
                return self._more()
            case ms.Map():
                held = question.held
                if held not in self.held or held.snapshot.step in self.damaged:
                    raise NotFound("That snapshot is not in memory any more.")
                is_otherwise = held.share in self.otherwise
                tree, every = _cut(held.snapshot.step, held.shares, is_otherwise=is_otherwise)
                share = every[held.share]
                has_header = held.share == 0
                return ms.Mapped(
                    layout=share.layout,
                    epoch=EPOCH,
                    skeleton=tree.skeleton if has_header else "",
                    tensors=described(tree) if has_header else (),
                    sums=tuple(
                        block_sums(memoryview(share.data)[at : at + size])
                        for at, size in share.layout.parts
                    ),
                ), _memory(self._meddled(held, share.data))
        raise AssertionError(f"not expected: {question}")

    def _meddled(self, held: ms.Held, data: bytes) -> bytes:
        """What is in memory: a byte of the last tensor is another if the test flipped it."""
        if held not in self.flipped:
            return data
        return data[:-1] + bytes([data[-1] ^ 1])

    def _manifest(self, number: int) -> tuple[Manifest, list[bytes]]:
        tree, every = _cut(self.stored[number].step, self.holders)
        parts: list[Part] = []
        data: list[bytes] = []
        pieces: list[Piece] = []
        for index, share in enumerate(every):
            first = len(parts)
            for turn, (start, size) in enumerate(share.layout.parts):
                name = f"{index:05d}-0-0123abcd-{turn:05d}.bin"
                parts.append(Part(name, size, ("0" * 16,) * -(-size // BLOCK_BYTES)))
                data.append(share.data[start : start + size])
            pieces += [
                Piece(p.tensor, p.offsets, p.shape, first + p.part, p.at)
                for p in share.layout.pieces
            ]
        header = Header(
            snapshot=self.stored[number], job="job", uid="uid", epoch=EPOCH,
            world_size=self.holders, shares=self.holders, taken_unix_s=1.5, version="0",
            skeleton=tree.skeleton, tensors=described(tree),
        )  # fmt: skip
        return Manifest(header=header, parts=tuple(parts), pieces=tuple(pieces)), data

    def _more(self) -> tuple[ms.Batch, SharedMemory | None]:
        """The next batch, always in the same memory."""
        number, left = self._stream
        if not left:
            return ms.Batch(slot=0, count=0), None
        batch = left.pop(0)
        data = self._fetch(number, batch)
        ring, given = self._ring, None
        if ring is None:
            ring = self._ring = SharedMemory.new(64 << 20)
            given = SharedMemory(os.dup(ring.file))
        os.pwrite(ring.file, data, 0)
        return ms.Batch(slot=0, count=len(batch)), given

    def _fetch(self, number: int, wanted: Sequence[PieceRows]) -> bytes:
        manifest, data = self._manifest(number)
        every, _, size = extents(manifest, selected(manifest, wanted))
        memory = bytearray(size)
        for each in every:
            memory[each.at : each.at + each.size] = data[each.part][
                each.start : each.start + each.size
            ]
        return bytes(memory)


def _cut(step: int, count: int, *, is_otherwise: bool = False) -> tuple[Tree, list[_Share]]:
    """The state of a step, in shares as ranks would have written it."""
    tree = flatten("state", state_of(step))
    tensors = described(tree)
    found = []
    is_replicated = [not is_otherwise or each.name != "state.large" for each in tensors]
    for slabs in shares(tensors, is_replicated, count):
        layout = laid_out(tensors, slabs)
        data = bytearray(layout.size)
        places = views(memoryview(data), tensors, layout.pieces, layout.starts())
        for piece, place in zip(layout.pieces, places, strict=True):
            box = tuple(slice(o, o + s) for o, s in zip(piece.offsets, piece.shape, strict=True))
            if place.numel():
                place.copy_(tree.tensors[piece.tensor][box])
        found.append(_Share(layout, bytes(data)))
    return tree, found


def _memory(data: bytes) -> SharedMemory:
    memory = SharedMemory.new(len(data))
    os.pwrite(memory.file, data, 0)
    return memory
