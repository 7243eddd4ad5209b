"""Waiting for a job or for a node to be free, over an etcd that is away for a while."""

import math

import pytest

from elasticd.control import job_submission, job_wait
from elasticd.control.job_wait import follow_to_end, wait_node_free
from elasticd.errors import NotSupported, Unavailable
from elasticd.records.ids import NodeId
from elasticd.records.job import EndedJob
from elasticd.records.reason import Phase
from elasticd.store.api import Delete, Txn
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC, end, make_newer, member, put

A = NodeId("a")


class Scene:
    """Node `a` holds a job, and something happens at each look; a second goes by between two."""

    def __init__(self, *events: str) -> None:
        self.store, self.now_s = MemoryStore(), 0.0
        job_submission.submit(self.store, KEYS, SPEC)
        put(self.store, KEYS.member(JOB, A), member("a"))
        self._events = list(events)

    def pause(self, seconds: float) -> None:
        self.now_s += 1.0
        event = self._events.pop(0) if self._events else ""
        if event == "away":
            self.store.go_away()
        elif event:
            self.store.come_back()
        if event == "left":
            self.store.commit(Txn(then=(Delete(key=KEYS.member(JOB, A)),)))

    def wait(self, until_s: float = 100.0) -> tuple[str, ...]:
        return wait_node_free(
            self.store, KEYS, A, until_s=until_s, now_s=lambda: self.now_s, pause=self.pause
        )


def test_etcd_that_is_away_for_a_while_is_waited_for() -> None:
    """Whoever drains a machine of a job of days does not begin again for that."""
    assert Scene("away", "", "", "back", "left").wait() == ()


def test_who_still_holds_it_at_the_end_is_named() -> None:
    assert Scene("away", "back").wait(until_s=5.0) == (JOB,)


def test_etcd_that_does_not_answer_at_first_or_at_the_end_is_told() -> None:
    """Its address may be wrong; and nobody knows whether the node is free."""
    scene = Scene()
    scene.store.go_away()
    with pytest.raises(Unavailable):
        scene.wait()
    with pytest.raises(Unavailable):
        Scene("away").wait(until_s=5.0)


def test_end_of_a_local_run_is_noticed_though_its_etcd_went_before_the_watch_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To read it anew would wait for an etcd that does not come back; the end is in the archive."""
    monkeypatch.setattr(job_wait, "TURN_S", 0.001)
    store = Scene().store
    found = follow_to_end(
        store, KEYS, JOB, is_private=True, until_s=math.inf, has_ended=lambda: True
    )
    assert found is None


def test_node_is_not_called_free_while_a_job_cannot_be_read() -> None:
    """It may be on that node."""
    scene = Scene()
    make_newer(scene.store, KEYS.spec(JOB))
    with pytest.raises(NotSupported, match="Whether node 'a' is free cannot be told: job j is"):
        scene.wait()


def test_node_on_which_a_stopped_job_still_saves_is_not_free() -> None:
    """Whoever is told that it is may switch the machine off, and the last save is lost."""
    scene = Scene("", "left")
    end(scene.store, Phase.STOPPED)
    put(scene.store, KEYS.ended_job(JOB), EndedJob())
    assert scene.wait(until_s=0.0) == (JOB,)
    assert scene.wait() == ()
    assert scene.now_s == 2.0
