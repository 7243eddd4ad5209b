"""A heal brings the state over in small pieces, whatever its tensors are like."""

import socket
import struct
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch

from elasticd.tensors import cuda
from elasticd.tensors.tensor_bytes import TensorBytes
from elasticd.tensors.tree import Tree, flatten, unflatten
from elasticd.train.sync import transfer_protocol
from elasticd.train.sync.newest_state import SourceDecision
from elasticd.train.sync.state_fetch import FetchResult, fetch_state
from elasticd.train.sync.state_server import StateServer
from tests.fixtures.patience import patience_s
from tests.fixtures.ranks import HOST

MIB = 1 << 20
WAIT_S = patience_s(30.0)


class SharedStore:
    """A TCPStore of one process: `get` waits for what others set."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._is_new = threading.Condition()

    def set(self, key: str, value: Any) -> None:
        with self._is_new:
            self._values[key] = value
            self._is_new.notify_all()

    def get(self, key: str) -> Any:
        with self._is_new:
            assert self._is_new.wait_for(lambda: key in self._values, WAIT_S), key
            return self._values[key]

    def add(self, key: str, more: int) -> int:
        with self._is_new:
            self._values[key] = self._values.get(key, 0) + more
            return int(self._values[key])

    def check(self, keys: list[str]) -> bool:
        with self._is_new:
            return all(key in self._values for key in keys)


class OneOfTwo:
    """A rank of a group of two or three that are threads of this process."""

    generation, address = 7, HOST

    def __init__(self, rank: int, store: SharedStore) -> None:
        self.rank, self.store = rank, store

    def guarding(self, one: socket.socket, /) -> AbstractContextManager[None]:
        return nullcontext()


class Turned:
    """Parameters whose memory is in another order than their elements, as on a GPU."""

    def __init__(self, value: float) -> None:
        memory = torch.arange(4 * MIB, dtype=torch.float32).view(4, MIB) + value
        self.entries: dict[str, Any] = {"w": memory.t()}
        self.is_broken = False

    def tree(self) -> Tree:
        return flatten("state", self.entries)

    def modules(self) -> dict[str, torch.nn.Module]:
        return {}

    def retie(self, skeleton: str) -> None:
        pass

    def load(self, source: Tree, position: tuple[int, int]) -> None:
        self.entries = unflatten(source)


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of what is not plain in memory were copied to the host at a time."""
    lengths: list[int] = []
    staging = TensorBytes._staging

    def noted(data: TensorBytes, start: int, length: int) -> torch.Tensor:
        made = staging(data, start, length)
        lengths.append(made.nbytes)
        return made

    monkeypatch.setattr(TensorBytes, "_staging", noted)
    return lengths


def test_no_side_holds_more_than_a_piece_at_a_time(staged: list[int]) -> None:
    """Of 16 MiB that differ each question brings 4 at most, and each side copies no more."""
    store, healed = SharedStore(), list[FetchResult]()
    states = [Turned(1.0), Turned(2.0)]
    decision = SourceDecision(position=(5, 0), sources=(0,), targets=(1,))
    source = threading.Thread(
        target=lambda: healed.append(fetch_state(OneOfTwo(0, store), decision, states[0]))
    )
    source.start()
    healed.append(fetch_state(OneOfTwo(1, store), decision, states[1]))
    source.join(WAIT_S)
    assert torch.equal(states[1].entries["w"], Turned(1.0).entries["w"])
    assert {each.received_bytes + each.sent_bytes for each in healed} == {16 * MIB}
    assert max(staged) <= 4 * MIB and sum(staged) >= 2 * 16 * MIB


def test_devices_are_waited_for_before_and_after_threads_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Torch puts what it copied to a GPU into another order there, and waits for no such kernel."""
    store, done = SharedStore(), list[str]()
    states = [Turned(1.0), Turned(2.0)]
    fill, synchronize = TensorBytes.fill, cuda.synchronize

    def noted_fill(*args: Any) -> None:
        fill(*args)
        done.append("write")

    def noted_wait(tensors: Iterable[torch.Tensor]) -> None:
        if threading.current_thread() is threading.main_thread():
            done.append(f"wait for {len(kept := list(tensors))}")
            tensors = kept
        synchronize(tensors)

    monkeypatch.setattr(TensorBytes, "fill", noted_fill)
    monkeypatch.setattr(cuda, "synchronize", noted_wait)
    decision = SourceDecision(position=(5, 0), sources=(0,), targets=(1,))
    source = threading.Thread(target=fetch_state, args=(OneOfTwo(0, store), decision, states[0]))
    source.start()
    fetch_state(OneOfTwo(1, store), decision, states[1])
    source.join(WAIT_S)
    assert [done[0], done[-1]] == ["wait for 1"] * 2 and done.count("wait for 1") == 2
    assert "write" in done


def test_sources_that_number_their_tensors_otherwise_are_not_asked_by_number() -> None:
    """One was healed by a world that broke before it had built all; the bytes would be of others
    of the same shape.
    """
    store = SharedStore()
    values = {f"t{number}": torch.full((20_000,), float(number)) for number in range(100)}
    states: list[Any] = [Turned(0.0), Turned(0.0), Turned(0.0)]
    states[0].entries = dict(values)
    states[1].entries = dict(reversed(values.items()))
    states[2].entries = {name: torch.zeros(20_000) for name in values}
    decision = SourceDecision(position=(5, 0), sources=(0, 1), targets=(2,))
    sources = [
        threading.Thread(target=fetch_state, args=(OneOfTwo(rank, store), decision, states[rank]))
        for rank in (0, 1)
    ]
    for source in sources:
        source.start()
    fetch_state(OneOfTwo(2, store), decision, states[2])
    for source in sources:
        source.join(WAIT_S)
    assert all(torch.equal(states[2].entries[name], each) for name, each in values.items())


def test_tensor_that_differs_between_sources_is_one_of_them() -> None:
    """And all that no optimizer owns is of the same one, such as a sum and its count."""
    store = SharedStore()
    states: list[Any] = [Turned(0.0), Turned(0.0), Turned(0.0), Turned(0.0)]
    for rank, state in enumerate(states):
        own = {f"own{number}": torch.full((2 * MIB,), float(rank)) for number in range(3)}
        state.entries = own | {"owned": torch.full((4 * MIB,), float(rank == 3))}
    decision = SourceDecision(position=(5, 0), sources=(0, 1, 2), targets=(3,))

    def heal(rank: int) -> FetchResult:
        group = OneOfTwo(rank, store)
        return fetch_state(group, decision, states[rank], lambda _: [False] * 3 + [True])

    results: list[FetchResult] = []
    sources = [
        threading.Thread(target=lambda at=rank: results.append(heal(at))) for rank in (0, 1, 2)
    ]
    for source in sources:
        source.start()
    heal(3)
    for source in sources:
        source.join(WAIT_S)
    got = states[3].entries
    assert {float(value) for n in range(3) for value in got[f"own{n}"].unique()} == {0.0}
    assert not got["owned"].any()
    assert sum(each.sent_bytes for each in results) == 4 * (6 * MIB + 4 * MIB)


def test_who_asks_for_more_than_a_piece_is_cut_off(staged: list[int]) -> None:
    """What a question costs this host is limited here, not by who asks."""
    with (
        StateServer(Turned(1.0).tree(), address=HOST, generation=7) as source,
        socket.create_connection((HOST, source.port), timeout=WAIT_S) as line,
    ):
        transfer_protocol.say_hello(line, source.token, 7, 1)
        ask = (transfer_protocol.BYTES, 0, 0, 8 * MIB)
        line.sendall(struct.pack("<BIQQ", *ask))
        assert line.recv(1) == b""
        assert source.sent_bytes == 0
    assert not staged
