"""State copied between processes: only what differs, and never half."""

import os
import signal
import socket
import struct
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch

import elasticd.train.sync.state_fetch as heal_module
import elasticd.train.sync.state_server as server_module
from elasticd.tensors.tree import Tree, flatten, unflatten
from elasticd.train.process_group.group import Group, GroupBroken
from elasticd.train.sync import transfer_protocol
from elasticd.train.sync.newest_state import RankReport, SourceDecision, agree_on_source
from elasticd.train.sync.state_fetch import FetchResult, fetch_state
from elasticd.train.sync.state_server import StateServer
from elasticd.train.sync.transfer_protocol import PIECE_BYTES
from tests.fixtures.patience import patience_s
from tests.fixtures.ranks import HOST, Cast, entered
from tests.fixtures.state_hash import state_hash

PATIENCE_S = patience_s(15.0)
"""Far above what the end of a source takes; nothing else would end the wait."""
LAYERS = 4
LAYER_BYTES = 3 * PIECE_BYTES


class Possession:
    """A state of plain tensors, as `fetch_state` and `agree_on_source` see one."""

    def __init__(self, *, seed: int, position: tuple[int, int] | None) -> None:
        generator = torch.Generator().manual_seed(seed)
        count = LAYER_BYTES // 4
        self.entries: dict[str, Any] = {
            f"w{index}": torch.randn(count, generator=generator) for index in range(LAYERS)
        }
        self.entries["turned"] = (torch.arange(21, dtype=torch.int16) + seed).reshape(7, 3).mT
        self.entries["expanded"] = torch.full((7, 1), float(seed)).expand(7, 3)
        self.entries["small"] = [torch.tensor(seed), float(seed)]
        self.is_new = position is None
        self.position = position or (0, 0)
        self.is_broken = self.has_stepped = self.is_sharded = False

    @property
    def is_clean(self) -> bool:
        return not self.is_broken

    def structure(self) -> tuple[str, ...]:
        return ("all alike",)

    def tree(self) -> Tree:
        return flatten("state", self.entries)

    def modules(self) -> dict[str, torch.nn.Module]:
        return {}

    def retie(self, skeleton: str) -> None:
        pass

    def load(self, source: Tree, position: tuple[int, int]) -> None:
        self.entries = unflatten(source)
        self.position, self.is_broken, self.is_new = position, False, False


def part(line: Connection, rank: int, size: int, port: int, state: Possession) -> None:
    """Form, agree, heal; say what it cost and what there is now."""
    group = Group(entered(rank, size, port), backend="gloo", timeout_s=patience_s(20.0))
    group.form()
    decision = agree_on_source(group, RankReport.of(rank, state), state.structure())
    healed = fetch_state(group, decision, state)
    line.send((decision, healed, state.position, state_hash(state.tree())))
    group.close()


def heal_all(states: list[Possession]) -> tuple[SourceDecision, list[FetchResult]]:
    """Check that all ranks end with one state at one position."""
    with Cast() as cast:
        _, port = cast.store()
        size = len(states)
        ranks = [cast.start(part, rank, size, port, state) for rank, state in enumerate(states)]
        said = [each.hear() for each in ranks]
    decision = said[0][0]
    assert {(position, prints) for _, _, position, prints in said} == {
        (decision.position, state_hash(states[decision.sources[0]].tree()))
    }
    return decision, [healed for _, healed, _, _ in said]


def test_equal_ranks_exchange_nothing() -> None:
    decision, healed = heal_all([Possession(seed=1, position=(5, 0)) for _ in range(2)])
    assert decision.targets == ()
    assert healed == [FetchResult(), FetchResult()]


def test_two_joiners_are_served_by_all_who_have_the_state() -> None:
    old = [Possession(seed=1, position=(5, 0)) for _ in range(2)]
    decision, healed = heal_all([*old, *(Possession(seed=2, position=None) for _ in range(2))])
    assert decision.sources == (0, 1) and decision.targets == (2, 3)
    for each in healed[2:]:
        assert each.received_bytes >= LAYERS * LAYER_BYTES
    assert all(each.sent_bytes >= LAYER_BYTES for each in healed[:2])


def test_what_is_equal_does_not_travel() -> None:
    states = [Possession(seed=1, position=None) for _ in range(2)]
    states[1].entries["w2"][PIECE_BYTES // 4 + 5] += 1.0
    decision, healed = heal_all(states)
    assert decision.targets == (1,)
    # One piece, and the expanded tensor, which has no memory to compare with or to write to.
    assert healed[1].received_bytes == PIECE_BYTES + 7 * 3 * 4 == healed[0].sent_bytes


def test_what_a_joiner_does_not_have_yet_is_created() -> None:
    behind = Possession(seed=1, position=(3, 0))
    del behind.entries["w3"]
    behind.entries["w1"] = torch.zeros(5)
    heal_all([behind, Possession(seed=1, position=(5, 0))])


def older_part(line: Connection, rank: int, size: int, port: int, state: Possession) -> None:
    """As a version that tells no modes of modules, and reads three words of a source's place."""
    vars(heal_module)["_modes_key"] = "elasticd/heal/nowhere/{}".format
    part(line, rank, size, port, state)


@pytest.mark.parametrize("older", [0, 1])
def test_a_version_that_knows_no_modes_gives_and_takes_a_state(older: int) -> None:
    """While a cluster is upgraded node by node, both versions are in one world."""
    states = [Possession(seed=1, position=(5, 0)), Possession(seed=2, position=None)]
    with Cast() as cast:
        _, port = cast.store()
        parts = [older_part if rank == older else part for rank in range(2)]
        ranks = [cast.start(each, n, 2, port, states[n]) for n, each in enumerate(parts)]
        said = [each.hear() for each in ranks]
    assert said[0][2:] == said[1][2:] and said[1][1].received_bytes > 0


# --- when somebody is lost ----------------------------------------------------------------------


def serve_nothing(line: Connection, rank: int, port: int, word: str) -> None:
    """A source that says where it is, takes connections, and goes silent or dies."""
    group = Group(entered(rank, 2, port), backend="gloo", timeout_s=patience_s(20.0))
    group.form()
    with socket.create_server((HOST, 0)) as listener:
        place = f'["{HOST}", {listener.getsockname()[1]}, "{"0" * 32}"]'
        group.store.set(f"elasticd/heal/source/{rank}", place)
        lines = [listener.accept()]
        line.send("connected")
        if word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        while lines:
            lines.append(listener.accept())


def abort_when_told(line: Connection, group: Group) -> None:
    line.recv()
    group.abort()


def fetch(line: Connection, rank: int, port: int, word: str) -> None:
    state = Possession(seed=1, position=(1, 0))
    group = Group(entered(rank, 2, port), backend="gloo", timeout_s=patience_s(20.0))
    group.form()
    vars(heal_module)["SILENCE_LIMIT_S"] = 10_000.0
    if word == "abort":
        threading.Thread(target=abort_when_told, args=(line, group)).start()
    started_s = time.monotonic()
    try:
        fetch_state(group, SourceDecision(position=(5, 0), sources=(0,), targets=(1,)), state)
    except GroupBroken as exc:
        line.send((str(exc), time.monotonic() - started_s, state.is_clean, state.position))
    group.close()
    line.send("closed")


def lose_source(word: str) -> tuple[str, float, bool, tuple[int, int]]:
    with Cast() as cast:
        _, port = cast.store()
        source = cast.start(serve_nothing, 0, port, word)
        target = cast.start(fetch, 1, port, word)
        assert source.hear() == "connected"
        if word == "abort":
            time.sleep(0.2)  # So that the target waits for an answer.
            target.tell("the world is over")
        said: tuple[str, float, bool, tuple[int, int]] = target.hear()
        assert target.hear() == "closed"
        return said


def test_a_source_that_dies_ends_the_heal_and_leaves_the_target_as_it_was() -> None:
    why, took_s, is_clean, position = lose_source("die")
    assert "rank 0" in why and took_s < PATIENCE_S
    assert is_clean and position == (1, 0)


def test_abort_wakes_a_target_whose_source_is_silent() -> None:
    why, took_s, is_clean, _ = lose_source("abort")
    assert "rank 0" in why and took_s < PATIENCE_S and is_clean


def serve_damaged(line: Connection, rank: int, port: int) -> None:
    """A source between which and the target a bit is turned."""
    group = Group(entered(rank, 2, port), backend="gloo", timeout_s=patience_s(20.0))
    group.form()
    server_module.sum_of = lambda data: bytes(8)  # type: ignore[attr-defined]
    tree = Possession(seed=2, position=(5, 0)).tree()
    with StateServer(tree, address=HOST, generation=group.generation) as source:
        place = f'["{HOST}", {source.port}, "{source.token}"]'
        group.store.set(f"elasticd/heal/source/{rank}", place)
        line.recv()


def test_bytes_that_were_damaged_on_the_way_are_no_state() -> None:
    """The target counts as broken, and the next generation heals it anew."""
    with Cast() as cast:
        _, port = cast.store()
        cast.start(serve_damaged, 0, port)
        why, _, is_clean, position = cast.start(fetch, 1, port, "").hear()
        assert "damaged on the way" in why and not is_clean and position == (1, 0)


# --- who may ask ----------------------------------------------------------------------------------


def asked(source: StateServer, hello: bytes) -> bytes:
    """What a visitor gets who says this and asks for the manifest."""
    with socket.create_connection((HOST, source.port), timeout=patience_s(10.0)) as line:
        try:
            line.sendall(hello + struct.pack("<BIQQ", transfer_protocol.MANIFEST, 0, 0, 0))
            return line.recv(8)
        except ConnectionResetError:
            return b""


def hello_of(token: str, generation: int) -> bytes:
    return struct.pack("<16s32sQI", b"elasticd-heal-1\n", token.encode(), generation, 1)


def test_only_who_knows_token_and_generation_is_answered() -> None:
    tree = flatten("state", {"w": torch.zeros(3)})
    with StateServer(tree, address=HOST, generation=7) as source:
        assert asked(source, hello_of(source.token, 7)) != b""
        assert asked(source, hello_of("0" * 32, 7)) == b""
        assert asked(source, hello_of(source.token, 6)) == b""
        assert asked(source, b"GET / HTTP/1.1\r\n" * 10) == b""


def test_questions_out_of_range_end_the_connection() -> None:
    tree = flatten("state", {"w": torch.zeros(3)})
    wrong = [
        (transfer_protocol.BYTES, 1, 0, 4),
        (transfer_protocol.BYTES, 0, 8, 8),
        (transfer_protocol.BYTES, 0, 0, transfer_protocol.REQUEST_LIMIT_BYTES + 1),
        (transfer_protocol.DIGESTS, 0, 1, 1),
        (transfer_protocol.DIGESTS, 0, 0, 1 << 30),
        (9, 0, 0, 0),
    ]
    with StateServer(tree, address=HOST, generation=7) as source:
        for ask in wrong:
            with socket.create_connection((HOST, source.port), timeout=patience_s(10.0)) as line:
                line.sendall(hello_of(source.token, 7) + struct.pack("<BIQQ", *ask))
                assert line.recv(1) == b""
        assert source.sent_bytes == 0


def test_hash_of_a_state_sees_one_bit_a_type_and_a_shape() -> None:
    base = torch.zeros(3 * PIECE_BYTES // 4)
    prints = [state_hash(flatten("s", base))]
    for index in (0, len(base) // 2, len(base) - 1):
        other = base.clone()
        other[index] = -0.0
        prints.append(state_hash(flatten("s", other)))
    prints.append(state_hash(flatten("s", base.view(torch.int32))))
    prints.append(state_hash(flatten("s", base.reshape(3, -1))))
    assert len(set(prints)) == len(prints)
    assert state_hash(flatten("s", base.clone())) == prints[0]
