"""One of several processes leads, on the store in memory and on every etcd that we work with."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from elasticd.leader.election import Election, Term
from elasticd.leader.handover import READ_S, UNABLE_S, Handover
from elasticd.records.autoscale.leader import Leader
from elasticd.records.codec import decode
from elasticd.records.keys import Keys
from elasticd.store.api import Put, Store, Txn
from tests.contract.conftest import Backend
from tests.fixtures.patience import patience_s
from tests.fixtures.store import PATIENT_S, wait_until

Stand = Callable[..., Election]


@pytest.fixture
def keys(request: pytest.FixtureRequest) -> Keys:
    """A cluster of this test's own: the etcd is shared."""
    return Keys(cluster=request.node.name)


@pytest.fixture
def stand(keys: Keys) -> Iterator[Stand]:
    """Makes a candidate, and ends it after the test."""
    with ExitStack() as stack:

        def begin(store: Store, handover: Handover | None = None) -> Election:
            election = Election(
                store, keys.autoscaler_election, ttl_s=patience_s(6.0), handover=handover
            )
            stack.callback(election.close)
            return election

        yield begin


def elected(election: Election) -> Term:
    """Let it take part until it leads."""
    terms: list[Term] = []

    def leads() -> bool:
        term = election.campaign()
        terms.extend([term] if term is not None else [])
        return term is not None

    wait_until(leads)
    return terms[-1]


def is_written(store: Store, term: Term, key: str) -> bool:
    return store.commit(Txn(when=(term.standing,), then=(Put(key=key, value=b"v"),))).succeeded


def test_one_of_several_candidates_leads(backend: Backend, stand: Stand, keys: Keys) -> None:
    """The others stand by, however often they try; the key says who it is."""
    first, second = stand(backend.store), stand(backend.other)
    term = elected(first)
    assert [second.campaign() for _ in range(20)] == [None] * 20
    item = backend.other.get(keys.autoscaler_election)
    assert item is not None and item.mod_revision == term.standing.revision
    assert decode(Leader, item.value).token


def test_whoever_resigns_is_followed_at_once(backend: Backend, stand: Stand) -> None:
    """The lease is given back, and not left to run out; its term writes nothing more."""
    first = stand(backend.store)
    before = elected(first)
    second = stand(backend.other)
    first.close()
    after = elected(second)
    assert after.standing.revision > before.standing.revision
    assert first.term is None
    assert not is_written(backend.other, before, f"/{after.standing.revision}/x")
    assert is_written(backend.other, after, f"/{after.standing.revision}/x")


def test_lead_that_is_offered_is_taken_over(backend: Backend, stand: Stand, keys: Keys) -> None:
    """In one transaction: nobody else is elected, and the term before writes nothing more."""
    now_s = [0.0]
    key = keys.operator_offer()

    def handover(*, is_able: bool) -> Handover:
        return Handover(
            key, is_unable=lambda: not is_able, can_lead=lambda: is_able, now_s=lambda: now_s[0]
        )

    first = stand(backend.store, handover(is_able=False))
    before = elected(first)
    assert first.campaign() is before and backend.other.get(key) is None
    second = stand(backend.other, handover(is_able=True))
    now_s[0] += UNABLE_S
    assert second.campaign() is None
    assert first.campaign() is before and backend.other.get(key) is not None
    now_s[0] += READ_S
    after = elected(second)
    assert not is_written(backend.other, before, f"/{after.standing.revision}/z")
    assert is_written(backend.other, after, f"/{after.standing.revision}/z")
    wait_until(lambda: first.campaign() is None)
    assert backend.other.get(key) is None, "what was offered is taken"
    # What the first one gave back of its own is not what the second one has put.
    item = backend.other.get(keys.autoscaler_election)
    assert item is not None and item.mod_revision == after.standing.revision


def test_a_leader_whose_lease_ran_out_stands_again(backend: Backend, stand: Stand) -> None:
    """It is told so, and its next term is another one."""
    woken = threading.Event()
    election = stand(backend.store)
    before = elected(election)
    election._wake = woken.set
    backend.end_lease(before.lease.id)
    after = elected_again(election, before)
    assert woken.wait(PATIENT_S)
    assert not is_written(backend.other, before, f"/{after.standing.revision}/y")


def elected_again(election: Election, before: Term) -> Term:
    wait_until(lambda: election.campaign() not in (None, before))
    term = election.term
    assert term is not None
    return term
