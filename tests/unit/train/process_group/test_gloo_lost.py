"""What counts as lost: what a thread of Gloo's is in for some time, with no connection left."""

from types import SimpleNamespace
from typing import Any

import pytest

from elasticd.train.process_group import gloo_lost as losses_module
from elasticd.train.process_group.gloo_lost import LOOKS, LOST_S, LostCollectives, keep_busy_groups
from elasticd.train.tcp_store.open_sockets import GlooLoop, OpenSocket

OWN, KNOCK = 7, 8


class FakeWork:
    def __init__(self, *, has_result: bool = False, hides_result: bool = False) -> None:
        self._has_result = has_result
        self.hides_result = hides_result
        self.given_up: list[bool] = []

    def has_result(self) -> bool:
        return self._has_result

    def give_up(self, *, may_end_future: bool) -> None:
        self.given_up.append(may_end_future)


class FakeGroup:
    threads = 2
    may_end_futures = True
    is_kept = False

    def __init__(self, *works: FakeWork) -> None:
        self.works = list(works)

    def under_way(self) -> Any:
        return list(self.works)

    def keep(self) -> None:
        self.is_kept = True


class Place:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.links: list[int] = []
        self.groups: list[FakeGroup] = []

    def look_long(self, losses: LostCollectives) -> None:
        for _ in range(LOOKS + 1):
            losses.give_up_lost()
            self.now_s += LOST_S / LOOKS


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place()

    def loops(known: Any) -> list[GlooLoop]:
        return [
            GlooLoop(OpenSocket(3, 3), tuple(OpenSocket(inode, inode) for inode in place.links))
        ]

    clock = SimpleNamespace(monotonic=lambda: place.now_s)
    groups = SimpleNamespace(
        busy_groups=lambda: list(place.groups),
        still_busy=lambda limit_s: [group for group in place.groups if group.works],
    )
    monkeypatch.setattr(losses_module, "open_sockets", SimpleNamespace(gloo_loops=loops))
    monkeypatch.setattr(losses_module, "gloo_group", groups)
    monkeypatch.setattr(losses_module, "time", clock)
    return place


def test_what_stays_is_given_up_and_its_group_kept(place: Place) -> None:
    work = FakeWork()
    place.groups = [FakeGroup(work)]
    place.look_long(LostCollectives([OWN]))
    assert work.given_up == [True] and place.groups[0].is_kept


def test_nothing_is_lost_while_a_connection_is_open(place: Place) -> None:
    """But for connections that came later: those are knocks, which Gloo may keep."""
    work, losses = FakeWork(), LostCollectives([OWN])
    place.groups, place.links = [FakeGroup(work)], [OWN, KNOCK]
    place.look_long(losses)
    assert not work.given_up
    place.links = [KNOCK]
    place.look_long(losses)
    assert work.given_up


def test_what_was_begun_a_moment_ago_is_not_lost(place: Place) -> None:
    losses = LostCollectives([OWN])
    place.look_long(losses)
    work = FakeWork()
    place.groups = [FakeGroup(work)]
    losses.give_up_lost()
    assert not work.given_up


@pytest.mark.parametrize(("looks", "took_s"), [(LOOKS - 1, 10 * LOST_S), (10 * LOOKS, LOST_S / 2)])
def test_few_looks_and_a_short_time_are_not_enough(place: Place, looks: int, took_s: float) -> None:
    """A machine that stood still between two looks; a guard that looks often."""
    work, losses = FakeWork(), LostCollectives([OWN])
    place.groups = [FakeGroup(work)]
    for _ in range(looks):
        losses.give_up_lost()
        place.now_s += took_s / looks
    assert not work.given_up


def test_what_waits_for_its_turn_is_lost_only_if_every_thread_is(place: Place) -> None:
    busy, lost, waiting = FakeWork(has_result=True), FakeWork(), FakeWork()
    place.groups = [FakeGroup(lost, busy, waiting)]
    losses = LostCollectives([OWN])
    place.look_long(losses)
    assert lost.given_up and not busy.given_up and not waiting.given_up
    place.groups = [FakeGroup(lost, FakeWork(), waiting)]
    place.look_long(losses)
    assert waiting.given_up


def test_what_hides_its_result_tells_nothing_of_a_thread(place: Place) -> None:
    """It may be over: a reduce_scatter that nobody has waited for."""
    hidden, lost, waiting = FakeWork(hides_result=True), FakeWork(), FakeWork()
    place.groups = [FakeGroup(hidden, lost, waiting)]
    place.look_long(LostCollectives([OWN]))
    assert hidden.given_up and lost.given_up and not waiting.given_up


def test_group_that_is_let_go_is_kept_if_something_does_not_end(place: Place) -> None:
    """Its future is left alone: Gloo may have it ended yet."""
    work = FakeWork()
    idle, busy = FakeGroup(), FakeGroup(work)
    place.groups = [idle, busy]
    keep_busy_groups(0.0)
    assert not idle.is_kept and busy.is_kept and work.given_up == [False]
