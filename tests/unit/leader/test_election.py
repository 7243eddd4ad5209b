"""An election by the candidate's own clock, and against an etcd that goes away."""

import pytest

from elasticd.errors import Unavailable
from elasticd.leader.election import REREAD_S, Election
from elasticd.records.keys import Keys
from elasticd.store.api import Put, Txn
from elasticd.store.memory import MemoryStore

KEY = Keys().autoscaler_election


class Clock:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def test_a_leader_that_was_stopped_longer_than_its_lease_leads_no_more() -> None:
    """By its own clock, before it hears anything; and what it was about to write is refused."""
    clock = Clock()
    store = MemoryStore(now_s=clock)
    is_stopped = [False]
    stopped = Election(store, KEY, ttl_s=10.0, now_s=clock, may_renew=lambda: not is_stopped[0])
    term = stopped.campaign()
    assert term is not None
    is_stopped[0] = True
    store.tick()
    assert stopped.term is term
    clock.s += 10.0
    assert stopped.term is None
    other = Election(store, KEY, ttl_s=10.0, now_s=clock)
    store.tick()
    assert other.campaign() is not None
    is_stopped[0] = False
    late = Txn(when=(term.standing,), then=(Put(key="x", value=b"late"),))
    assert not store.commit(late).succeeded
    assert stopped.campaign() is None and other.term is not None


def test_a_leader_leads_again_when_etcd_comes_back_with_its_lease() -> None:
    """Nobody else can have been elected meanwhile, so it is the same term."""
    clock = Clock()
    store = MemoryStore(now_s=clock)
    election = Election(store, KEY, ttl_s=10.0, now_s=clock)
    term = election.campaign()
    store.go_away()
    clock.s += 11.0
    assert election.campaign() is None
    store.come_back()
    assert election.campaign() is term is not None


def test_an_etcd_that_is_away_elects_nobody() -> None:
    """The caller hears of it; afterwards the same candidate is elected."""
    clock = Clock()
    store = MemoryStore(now_s=clock)
    election = Election(store, KEY, now_s=clock)
    store.go_away()
    with pytest.raises(Unavailable):
        election.campaign()
    store.come_back()
    assert election.campaign() is not None


def test_a_candidate_that_has_not_seen_the_key_does_not_stand() -> None:
    """As long as its watch has told nothing it may not know that somebody leads."""
    store = MemoryStore()
    store.drop_watches()
    election = Election(store, KEY)
    assert election.campaign() is None
    assert store.get(KEY) is None
    store.resume_watches()
    assert election.campaign() is not None


def test_an_end_that_the_watch_missed_is_found_a_minute_later() -> None:
    """etcd has lost events of watches that stayed open: nobody would ever lead again."""
    clock = Clock()
    store = MemoryStore(now_s=clock)
    first, second = Election(store, KEY, now_s=clock), Election(store, KEY, now_s=clock)
    assert first.campaign() is not None and second.campaign() is None
    store.drop_watches()
    first.close()
    for watch in store._watches:
        watch.missed.clear()
    store.resume_watches()
    assert second.campaign() is None, "nobody has told of it"
    clock.s += REREAD_S
    assert second.campaign() is not None
    assert len(store._watches) == 1


def test_close_gives_the_election_back() -> None:
    """The next one need not wait for the lease to run out; an etcd that is away is no error."""
    store = MemoryStore()
    first, second = Election(store, KEY), Election(store, KEY)
    assert first.campaign() is not None and second.campaign() is None
    first.close()
    assert second.campaign() is not None
    store.go_away()
    second.close()
    assert second.term is None
