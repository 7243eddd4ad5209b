"""A leader that cannot do its work, and others that can or cannot."""

from collections.abc import Callable

import pytest

from elasticd.leader.election import Election
from elasticd.leader.handover import AGAIN_S, READ_S, UNABLE_S, Handover
from elasticd.records.keys import Keys
from elasticd.store.memory import MemoryStore

KEY, OFFER = Keys().operator_election(), Keys().operator_offer()


class Candidate:
    """One process, and whether it can do the work."""

    def __init__(self, scene: "Scene", *, is_able: bool) -> None:
        self.is_able, self.tries = is_able, 0
        self.before_taking: Callable[[], object] = lambda: None
        handover = Handover(
            OFFER, is_unable=lambda: not self.is_able, can_lead=self.can_lead, now_s=scene.clock
        )
        self.election = Election(scene.store, KEY, handover=handover)

    def can_lead(self) -> bool:
        self.tries += 1
        self.before_taking()
        return self.is_able

    def leads(self) -> bool:
        """Take part in the election once."""
        return self.election.campaign() is not None


class Scene:
    """An etcd in memory, and a clock that all candidates have."""

    def __init__(self) -> None:
        self.store, self.now_s = MemoryStore(), 1000.0
        self.first = Candidate(self, is_able=True)
        assert self.first.leads()

    def clock(self) -> float:
        return self.now_s

    @property
    def is_offered(self) -> bool:
        return self.store.get(OFFER) is not None

    def offer(self) -> None:
        """Have the first one offer its lead."""
        self.first.is_able = False
        assert self.first.leads()
        self.now_s += UNABLE_S
        assert self.first.leads() and self.is_offered


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_lead_is_offered_after_a_while_and_as_long_as_it_is_needed(scene: Scene) -> None:
    """A short failure is none of these, and one that is over withdraws the offer."""
    scene.first.is_able = False
    assert scene.first.leads()
    scene.now_s += UNABLE_S - 1.0
    scene.first.is_able = True
    assert scene.first.leads()
    scene.now_s += 2.0
    scene.first.is_able = False
    assert scene.first.leads() and not scene.is_offered
    scene.now_s += UNABLE_S
    assert scene.first.leads() and scene.is_offered
    scene.first.is_able = True
    assert scene.first.leads() and not scene.is_offered


def test_where_nobody_can_do_the_work_the_lead_stays(scene: Scene) -> None:
    """The lead does not go round, and the others look now and then alone."""
    second = Candidate(scene, is_able=False)
    scene.offer()
    before = scene.store.get(KEY)
    for _ in range(100):
        assert not second.leads() and scene.first.leads()
        scene.now_s += 1.0
    assert scene.store.get(KEY) == before
    assert second.tries == 100.0 / READ_S


def test_who_can_do_the_work_takes_over(scene: Scene) -> None:
    second = Candidate(scene, is_able=True)
    assert not second.leads() and second.tries == 0, "nothing is offered"
    scene.offer()
    scene.now_s += READ_S
    assert second.leads() and not scene.first.leads()
    assert not scene.is_offered


def test_offer_that_is_withdrawn_at_that_moment_is_not_taken(scene: Scene) -> None:
    """The leader reaches the API server again while the other one tries whether it does."""

    def withdraw() -> None:
        scene.first.is_able = True
        assert scene.first.leads() and not scene.is_offered

    second = Candidate(scene, is_able=True)
    second.before_taking = withdraw
    scene.offer()
    assert not second.leads() and second.tries == 1
    assert scene.first.leads()


def test_lead_does_not_go_back_and_forth(scene: Scene) -> None:
    """Where two can do what is tried, and not the work itself."""
    second = Candidate(scene, is_able=True)
    scene.offer()
    assert second.leads() and not scene.first.leads()
    second.is_able, scene.first.is_able = False, True
    assert second.leads()
    scene.now_s += UNABLE_S
    assert second.leads() and scene.is_offered
    assert not scene.first.leads()
    scene.now_s += AGAIN_S - UNABLE_S - 1.0
    assert not scene.first.leads() and second.leads()
    scene.now_s += 1.0
    assert scene.first.leads() and not second.leads()


def test_new_term_begins_without_what_the_one_before_lacked(scene: Scene) -> None:
    """It has not listed anything yet, which is no failure of a minute."""
    scene.first.is_able = False
    assert scene.first.leads()
    for lease in list(scene.store._grants):
        scene.store.expire(lease)
    scene.now_s += UNABLE_S
    assert scene.first.leads() and scene.first.leads()
    assert not scene.is_offered


def test_offer_that_etcd_does_not_take_is_no_failure_of_the_round(scene: Scene) -> None:
    """The leader does what it can in that round, and offers its lead in a later one."""
    scene.first.is_able = False
    assert scene.first.leads()
    scene.now_s += UNABLE_S
    scene.store.go_away()
    assert scene.first.leads()
    scene.store.come_back()
    assert scene.first.leads() and scene.is_offered
