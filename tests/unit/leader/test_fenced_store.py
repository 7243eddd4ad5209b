"""A store that writes only while its holder leads."""

import pytest

from elasticd.control.job_submission import submit
from elasticd.errors import Fenced, InvariantBroken
from elasticd.leader.election import Election, Term, boottime_s
from elasticd.leader.fenced_store import FencedStore
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec
from elasticd.records.keys import Keys
from elasticd.store.api import Delete, ModifiedAt, Put, Txn
from elasticd.store.memory import MemoryStore

KEYS = Keys()
PUT = Put(key="x", value=b"1")


def elected(store: MemoryStore) -> tuple[Election, Term]:
    election = Election(store, KEYS.operator_election())
    term = election.campaign()
    assert term is not None
    return election, term


def test_it_writes_while_its_term_lasts_and_nothing_after() -> None:
    """Also in the time in which a leader of before does not know of the next one."""
    store = MemoryStore()
    election, term = elected(store)
    fenced = FencedStore(store, term)
    assert fenced.commit(Txn(then=(PUT,))).succeeded
    store.drop_watches()  # It has not heard of it.
    store.commit(Txn(then=(Delete(key=KEYS.operator_election()),)))
    assert term.leads(boottime_s())
    with pytest.raises(Fenced):
        fenced.commit(Txn(then=(Put(key="x", value=b"2"),)))
    item = store.get("x")
    assert item is not None and item.value == b"1"
    election.close()


def test_a_leader_by_its_own_clock_no_more_asks_nothing() -> None:
    """Its lease may live on in etcd for a moment; it does not try."""
    store = MemoryStore()
    _, term = elected(store)
    term.is_over = True
    before = store.list("").revision
    with pytest.raises(Fenced, match="does not lead"):
        FencedStore(store, term).commit(Txn(then=(PUT,)))
    assert store.list("").revision == before


def test_a_condition_that_does_not_hold_is_no_end_of_the_term() -> None:
    """The caller is told as a store tells it."""
    store = MemoryStore()
    _, term = elected(store)
    fenced = FencedStore(store, term)
    store.commit(Txn(then=(PUT,)))
    wrong = Txn(when=(ModifiedAt(key="x", revision=0),), then=(PUT,))
    assert not fenced.commit(wrong).succeeded


def test_what_is_done_otherwise_cannot_be_fenced() -> None:
    """It would be done by a leader of before just because it is none."""
    store = MemoryStore()
    _, term = elected(store)
    with pytest.raises(InvariantBroken):
        FencedStore(store, term).commit(Txn(otherwise=(PUT,)))


def test_what_is_built_on_a_store_is_fenced_too() -> None:
    """Submitting a job takes several transactions: the next leader finds it whole or reserved."""
    store = MemoryStore()
    election, term = elected(store)
    spec = JobSpec(name=JobName("a"), uid="u", entry_kind=EntryKind.SCRIPT, entry="x.py")
    submit(FencedStore(store, term), KEYS, spec)
    assert store.get(KEYS.spec(spec.name)) is not None
    election.close()
    other = JobSpec(name=JobName("b"), uid="v", entry_kind=EntryKind.SCRIPT, entry="x.py")
    with pytest.raises(Fenced):
        submit(FencedStore(store, term), KEYS, other)
    assert not store.keys(KEYS.job(other.name))
