"""Copies the newest state to the ranks that lack it: only what differs, over several connections.

Ranks with the state (sources) serve, ranks that lack it (targets) fetch. A target first compares
the beginning of each tensor: where that differs so does, in practice, the rest (an optimizer's step
changes all of a tensor), and it is fetched without another hash; where it is equal (a frozen layer,
a first formation from one seed) the other pieces are compared too. The tensors of optimizers are
equal on all sources, so any source may give a part of them. All else may differ between sources
(samples of a metric, a queue of each rank's own batches), and comes from one source. Bytes go
straight into the memory of the tensors that fit. Rejected: a broadcast over the process group,
which costs every rank of the world the time of the slowest, and cannot be resumed from another
source. Tensors on a GPU are read and written a piece at a time: a rank holds on the host only the
pieces that its connections have under way.
"""

import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import torch

from elasticd.errors import ElasticdError
from elasticd.net import framing
from elasticd.tensors import cuda
from elasticd.tensors.tensor_bytes import TensorBytes, has_room
from elasticd.tensors.tree import Tree, paths
from elasticd.train.device.device import CPU, device
from elasticd.train.group_broken import GroupBroken
from elasticd.train.state.module_mode import adopt_modes, modes_of
from elasticd.train.sync import transfer_protocol
from elasticd.train.sync.newest_state import SourceDecision
from elasticd.train.sync.state_server import SILENCE_LIMIT_S, StateServer
from elasticd.train.sync.transfer_protocol import (
    BYTES,
    DIGESTS,
    MANIFEST,
    PIECE_BYTES,
    REQUEST_LIMIT_BYTES,
    SUM_BYTES,
    TransferManifest,
    TransferRequest,
    sum_of,
)

__all__ = ["FetchResult", "LoadFailed", "fetch_state"]

STREAMS = 3
"""The connections of one target, divided among the sources."""

_CONNECT_LIMIT_S = 10.0

_Range = tuple[int, int, int]
"""The number of a tensor, its first byte and the number of bytes."""


class LoadFailed(ElasticdError):
    """Another rank's state arrived, and this rank's objects refused to load it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult:
    """The bytes and seconds that this rank spent on the copy of the state."""

    received_bytes: int = 0
    sent_bytes: int = 0
    compare_s: float = 0.0
    copy_s: float = 0.0


class FetchedState(Protocol):
    """The properties of a state that the transfer uses."""

    is_broken: bool

    def tree(self) -> Tree: ...
    def retie(self, skeleton: str, /) -> None: ...
    def load(self, source: Tree, position: tuple[int, int], /) -> None: ...
    def modules(self) -> dict[str, torch.nn.Module]: ...


class FetchGroup(Protocol):
    """The methods of a process group that a copy of the state needs."""

    @property
    def rank(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def store(self) -> Any: ...
    def guarding(self, one: socket.socket, /) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True)
class _Slot:
    """The place to which a tensor of the source is written."""

    tensor: torch.Tensor
    data: TensorBytes
    has_content: bool
    """True if the tensor had values before, which may be equal to the source's."""


class _Work:
    """The tasks that are left: those for the first source alone, and those for any source."""

    def __init__(self, own: Collection[int]) -> None:
        self._own = own
        self._of_first: deque[_Range] = deque()
        self._of_any: deque[_Range] = deque()

    def __iter__(self) -> Iterator[_Range]:
        return chain(self._of_first, self._of_any)

    def add(self, one: _Range) -> None:
        (self._of_first if one[0] in self._own else self._of_any).append(one)

    def take(self, *, is_first: bool) -> _Range | None:
        """Return the next task for a connection to the first source or another; None if none is."""
        for queue in (self._of_first, self._of_any) if is_first else (self._of_any,):
            with suppress(IndexError):
                return queue.popleft()
        return None


def fetch_state(
    group: FetchGroup,
    decision: SourceDecision,
    state: FetchedState,
    is_replicated: Callable[[Tree], Sequence[bool]] = lambda tree: [True] * len(tree.tensors),
) -> FetchResult:
    """Bring all ranks to the decision's position; return when all ranks are there.

    `is_replicated` says of each tensor of a source whether it is the same on all sources.

    Raises:
        GroupBroken: a source or target was lost meanwhile. This rank's state is then as before, or
            marked as broken.
    """
    if not decision.targets:
        return FetchResult()
    if group.rank not in decision.sources:
        healed = _fetch(group, decision, state)
        _wait_for_all(group, len(decision.targets), has_finished=True)
        return healed
    started_s = time.monotonic()
    tree = state.tree()
    own = [index for index, same in enumerate(is_replicated(tree)) if not same]
    with StateServer(tree, address=group.address, generation=group.generation) as source:
        # Apart from the place, and before it: a version without these reads the place alone.
        group.store.set(_own_key(group.rank), json.dumps(own))
        group.store.set(_modes_key(group.rank), json.dumps(modes_of(state.modules())))
        place = [group.address, source.port, source.token]
        group.store.set(_key(group.rank), json.dumps(place))
        _wait_for_all(group, len(decision.targets), has_finished=False)
    return FetchResult(sent_bytes=source.sent_bytes, copy_s=time.monotonic() - started_s)


def _wait_for_all(group: FetchGroup, targets: int, *, has_finished: bool) -> None:
    if has_finished and group.store.add("elasticd/heal/count", 1) == targets:
        group.store.set("elasticd/heal/over", b"")
    group.store.get("elasticd/heal/over")


def _fetch(group: FetchGroup, decision: SourceDecision, state: FetchedState) -> FetchResult:
    started_s = time.monotonic()
    turn = decision.targets.index(group.rank)
    order = [decision.sources[(turn + index) % len(decision.sources)] for index in range(STREAMS)]
    with ExitStack() as open_lines:
        lines = [_connect(group, rank, open_lines) for rank in order]
        modes = _value_at_source(group, _modes_key(order[0]))
        own = _value_at_source(group, _own_key(order[0]))
        manifest = _manifest(lines[0], order[0])
        # Tensors are asked for by number. One that has not built all of its state yet, or is of
        # another version, may number them otherwise.
        numbered = _numbered(manifest)
        alike = [
            (line, rank)
            for line, rank in zip(lines, order, strict=True)
            if rank == order[0] or _numbered(_manifest(line, rank)) == numbered
        ]
        lines, order = [line for line, _ in alike], [rank for _, rank in alike]
        state.retie(manifest.skeleton)
        slots = _slots(manifest, state.tree())
        # The threads below have streams of their own, which wait for nobody's.
        cuda.synchronize(slot.tensor for slot in slots)
        # A version that does not tell what sources have of their own may have anything.
        ranges, todo = (_Work(range(len(slots)) if own is None else set(own)) for _ in range(2))
        for index in range(len(slots)):
            todo.add((index, 0, 0))
        first = {id(line) for line, rank in zip(lines, order, strict=True) if rank == order[0]}
        _in_parallel(
            lines, order, lambda line: _compare(line, slots, todo, ranges, id(line) in first)
        )
        compared_s = time.monotonic()
        received = sum(length for _, _, length in ranges)
        if received:
            # From here on the memory is neither the old state nor the new one.
            state.is_broken = True
        _in_parallel(lines, order, lambda line: _copy(line, slots, ranges, id(line) in first))
        # Nor does any stream wait for theirs, on which the device still puts rows in their places.
        cuda.synchronize(slot.tensor for slot in slots)
    tree = Tree(manifest.skeleton, tuple(slot.tensor for slot in slots))
    try:
        state.load(tree, decision.position)
        if modes is not None:
            adopt_modes(state.modules(), modes)
    except (RuntimeError, OSError) as exc:
        # Not to be taken for an error of the network: no other world would do better.
        raise LoadFailed(f"The state of another rank does not load here: {exc}") from exc
    done_s = time.monotonic()
    return FetchResult(
        received_bytes=received, compare_s=compared_s - started_s, copy_s=done_s - compared_s
    )


def _connect(group: FetchGroup, rank: int, open_lines: ExitStack) -> socket.socket:
    with _explained(rank):
        address, port, token = json.loads(group.store.get(_key(rank)))
        line = open_lines.enter_context(
            socket.create_connection((address, port), timeout=_CONNECT_LIMIT_S)
        )
        open_lines.enter_context(group.guarding(line))
        line.settimeout(SILENCE_LIMIT_S)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transfer_protocol.say_hello(line, token, group.generation, group.rank)
    return line


def _manifest(line: socket.socket, rank: int) -> TransferManifest:
    with _explained(rank):
        TransferRequest(MANIFEST).send(line)
        return TransferManifest.from_json(transfer_protocol.read_text(line))


def _numbered(manifest: TransferManifest) -> tuple[object, ...]:
    """Return the paths, types and shapes of a source's tensors in the order of their numbers."""
    return paths(_empty(manifest)), manifest.tensors


def _empty(manifest: TransferManifest) -> Tree:
    return Tree(manifest.skeleton, tuple(torch.empty(0) for _ in manifest.tensors))


def _slots(manifest: TransferManifest, own: Tree) -> list[_Slot]:
    """Return a place for each tensor: the one of the same path, type and shape, otherwise a new
    one.
    """
    places = dict(zip(paths(own), own.tensors, strict=True))
    slots = []
    for path, (dtype, shape, kind) in zip(paths(_empty(manifest)), manifest.tensors, strict=True):
        here = places.get(path)
        fits = here is not None and here.dtype == dtype and tuple(here.shape) == shape
        if here is not None and fits and has_room(here):
            slots.append(_Slot(here.detach(), TensorBytes(here), has_content=True))
        else:
            fresh = torch.empty(shape, dtype=dtype, device=device() if kind == "cuda" else CPU)
            slots.append(_Slot(fresh, TensorBytes(fresh), has_content=False))
    return slots


def _compare(
    line: socket.socket,
    slots: Sequence[_Slot],
    todo: _Work,
    ranges: _Work,
    is_first: bool,
) -> None:
    """Thread: find what differs, a tensor at a time."""
    while (one := todo.take(is_first=is_first)) is not None:
        index = one[0]
        slot = slots[index]
        size = len(slot.data)
        start = 0
        pieces = -(-size // PIECE_BYTES)
        if slot.has_content and pieces and _differing(line, index, slot.data, 0, 1) == []:
            start = PIECE_BYTES
            for piece in _differing(line, index, slot.data, 1, pieces - 1):
                first = piece * PIECE_BYTES
                ranges.add((index, first, min(PIECE_BYTES, size - first)))
            start = size
        for first in range(start, size, REQUEST_LIMIT_BYTES):
            ranges.add((index, first, min(REQUEST_LIMIT_BYTES, size - first)))


def _differing(
    line: socket.socket, index: int, data: TensorBytes, first: int, count: int
) -> list[int]:
    """Return the numbers of the pieces whose digests differ; both sides compute at the
    same time.
    """
    if count <= 0:
        return []
    TransferRequest(DIGESTS, index, first, count).send(line)
    numbers = range(first, first + count)
    starts = [each * PIECE_BYTES for each in numbers]
    own = [sum_of(data.read(at, min(PIECE_BYTES, len(data) - at))) for at in starts]
    theirs = bytes(framing.read_exactly(line, count * SUM_BYTES))
    return [
        each
        for each, mine in zip(numbers, own, strict=True)
        if theirs[(each - first) * SUM_BYTES : (each - first + 1) * SUM_BYTES] != mine
    ]


def _copy(line: socket.socket, slots: Sequence[_Slot], ranges: _Work, is_first: bool) -> None:
    """Thread: fetch ranges; one request is always under way while an answer is read."""
    asked: deque[_Range] = deque()
    while True:
        while len(asked) < 2 and (one := ranges.take(is_first=is_first)) is not None:
            TransferRequest(BYTES, *one).send(line)
            asked.append(one)
        if not asked:
            return
        index, start, length = asked.popleft()
        slots[index].data.fill(
            start, length, lambda place: transfer_protocol.read_summed(line, place)
        )


@contextmanager
def _explained(rank: int) -> Iterator[None]:
    """Turn what a broken connection raises into a sentence about the source."""
    try:
        yield
    except (OSError, EOFError) as exc:
        raise GroupBroken(
            f"The connection to rank {rank}, which had the newest state, was closed before all of "
            f"it was here ({exc})."
        ) from exc


def _in_parallel(
    lines: Sequence[socket.socket], ranks: Sequence[int], work: Callable[[socket.socket], None]
) -> None:
    """Run `work` for each connection; the first failure ends them all, and is raised."""
    failures: list[tuple[int, BaseException]] = []

    def run(line: socket.socket, rank: int) -> None:
        try:
            work(line)
        except BaseException as exc:
            failures.append((rank, exc))
            for each in lines:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    threads = [
        threading.Thread(target=run, args=pair, name="elasticd-heal", daemon=True)
        for pair in zip(lines, ranks, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        rank, error = failures[0]
        with _explained(rank):
            raise error


def _value_at_source(group: FetchGroup, key: str) -> Any:
    """Return the value that the source wrote under a key; None if its version writes none."""
    return json.loads(group.store.get(key)) if group.store.check([key]) else None


def _key(rank: int) -> str:
    return f"elasticd/heal/source/{rank}"


def _own_key(rank: int) -> str:
    return f"elasticd/heal/own/{rank}"


def _modes_key(rank: int) -> str:
    return f"elasticd/heal/modes/{rank}"
