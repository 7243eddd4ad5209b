"""A rank tells its keeper where the next node's is, and never waits for another rank."""

from typing import Any

import pytest

from elasticd.keeper.wire import message as ms
from elasticd.train.save import next_keeper as mirroring_module
from elasticd.train.save.next_keeper import LAST_PAUSE_S, NextKeeper
from tests.unit.train.save.save_case import Clock

NODES = (0, 0, 1, 1)


class FakeStore:
    """A store that counts what it is asked."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}
        self.asked = 0
        self.is_gone = False

    def set(self, key: str, value: str) -> None:
        self.keys[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self.keys[key]

    def check(self, keys: list[str]) -> bool:
        self.asked += 1
        if self.is_gone:
            raise RuntimeError("Connection closed by peer")
        return all(key in self.keys for key in keys)


class Keeper:
    """One node's, which has a door; `told` are those that its workers named."""

    def __init__(self, port: int) -> None:
        self.door: ms.KeeperAddress | None = ms.KeeperAddress(
            host="here", port=port, token=f"token-{port}"
        )
        self.told: list[int] = []
        self.met = 0

    def ask(self, question: object, kind: type, *, timeout_s: float) -> Any:
        assert isinstance(question, ms.GetAddress) and kind is ms.Address
        self.met += 1
        return ms.Address(door=self.door)

    def send(self, question: object, *, timeout_s: float) -> None:
        assert isinstance(question, ms.Mirror)
        assert question.door.token == f"token-{question.door.port}"
        self.told.append(question.door.port)


class Scene:
    def __init__(self) -> None:
        self.store = FakeStore()
        self.keepers = {0: Keeper(10), 1: Keeper(11)}
        self.plan = object()
        self.ranks = [
            NextKeeper(self.store, rank=rank, generation=3, nodes=NODES) for rank in range(4)
        ]

    def sync(self, *ranks: int, snapshots: int = 1) -> None:
        for rank in ranks:
            self.ranks[rank].sync(self.keepers[NODES[rank]], self.plan, snapshots)  # type: ignore[arg-type]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(mirroring_module, "time", made.as_module())
    return made


def test_each_rank_names_the_next_nodes_door(clock: Clock) -> None:
    """The first rank of a node says its own; the others of that node need not."""
    scene = Scene()
    scene.sync(0, 1, 2, 3)
    assert scene.keepers[1].told == [10, 10] and scene.keepers[0].told == []
    clock.now_s += LAST_PAUSE_S
    scene.sync(0, 1, 2, 3)
    assert scene.keepers[0].told == [11, 11]
    assert [scene.keepers[node].met for node in (0, 1)] == [1, 1]


def test_nothing_is_asked_where_all_is_known(clock: Clock) -> None:
    """Commits go by; after a snapshot it is looked once more, and not told again."""
    scene = Scene()
    scene.sync(2, 0)
    asked = scene.store.asked
    for _ in range(100):
        scene.sync(0)
    assert scene.store.asked == asked
    scene.sync(0, snapshots=2)
    assert scene.store.asked == asked + 1
    assert scene.keepers[0].told == [11]


def test_node_without_a_word_is_asked_less_and_less(clock: Clock) -> None:
    """A thousand commits of a millisecond."""
    scene = Scene()
    for _ in range(1000):
        scene.sync(0)
        clock.now_s += 0.001
    assert scene.store.asked < 10
    clock.now_s += LAST_PAUSE_S
    scene.sync(2, 0)
    assert scene.keepers[0].told == [11]


def test_keeper_that_was_started_again_is_met_again(clock: Clock) -> None:
    """Its rank plans anew and writes down the new door; the other rank sees it after a snapshot."""
    scene = Scene()
    scene.sync(2, 0)
    scene.keepers[1] = Keeper(12)
    before, scene.plan = scene.plan, object()
    scene.sync(2)
    scene.plan = before
    scene.sync(0)
    assert scene.keepers[0].told == [11]
    scene.sync(0, snapshots=2)
    assert scene.keepers[0].told == [11, 12]


def test_keeper_without_a_door_is_told_of_to_nobody(clock: Clock) -> None:
    """The agent knows no address, or it cannot be listened on."""
    scene = Scene()
    scene.keepers[1].door = None
    scene.sync(2, 0)
    assert scene.keepers[0].told == []


def test_store_that_is_gone_is_no_harm(clock: Clock) -> None:
    """The generation is over then, and others say so."""
    scene = Scene()
    scene.store.is_gone = True
    scene.sync(0, 2)
    assert scene.keepers[0].told == []


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'{"host": 1, "port": 2, "token": "x"}'])
def test_word_that_makes_no_sense_is_passed_over(clock: Clock, text: bytes) -> None:
    """Of another version, perhaps."""
    scene = Scene()
    scene.store.keys["elasticd/keeper/3/1"] = text
    scene.sync(0)
    assert scene.keepers[0].told == []
