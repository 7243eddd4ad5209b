"""The contract of `Store`, kept by memory and by every etcd that we work with."""

import threading

import pytest

from elasticd.errors import Fenced, Refused
from elasticd.store.api import (
    Delete,
    KeyRange,
    ModifiedAt,
    Put,
    Store,
    Txn,
    UnchangedSince,
)
from tests.contract.conftest import Backend
from tests.fixtures.patience import patience_s
from tests.fixtures.recorder import LIMIT_S
from tests.fixtures.store import boottime_s, put, wait_until

TTL_S = patience_s(1.0)
"""Of a lease that a test waits out; one that is to live on has more, as a core may be busy."""


def nothing() -> None:
    """For `on_lost`, where losing is not the point."""


# --- reading ----------------------------------------------------------------------------------


def test_key_that_was_never_written_reads_as_none(store: Store, prefix: str) -> None:
    """Absence is an answer, not an error."""
    assert store.get(f"{prefix}a") is None


def test_value_reads_back_with_its_revisions(store: Store, prefix: str) -> None:
    """The revision of creation stays, that of the last change follows the writes."""
    first = put(store, f"{prefix}a", b"1")
    second = put(store, f"{prefix}a", b"\x00\xff2")
    item = store.get(f"{prefix}a")
    assert item is not None
    assert item.value == b"\x00\xff2"
    assert (item.create_revision, item.mod_revision) == (first, second)
    assert second > first


def test_key_made_anew_after_deletion_has_a_new_creation(store: Store, prefix: str) -> None:
    """Else an old incarnation could not be told from a new one."""
    put(store, f"{prefix}a")
    store.commit(Txn(then=(Delete(key=f"{prefix}a"),)))
    again = put(store, f"{prefix}a")
    item = store.get(f"{prefix}a")
    assert item is not None and item.create_revision == again


def test_list_gives_the_prefix_only_in_the_order_of_keys(store: Store, prefix: str) -> None:
    """Neighbours on both sides stay out."""
    for key in (f"{prefix}b/2", f"{prefix}b/1", f"{prefix}a", f"{prefix}c", f"{prefix}b"):
        last = put(store, key)
    snapshot = store.list(f"{prefix}b/")
    assert [item.key for item in snapshot.items] == [f"{prefix}b/1", f"{prefix}b/2"]
    assert snapshot.revision >= last
    assert snapshot.range == KeyRange(key=f"{prefix}b/", is_prefix=True)


def test_list_of_the_empty_prefix_gives_every_key(store: Store, prefix: str) -> None:
    """The edge at which etcd wants its keys written differently."""
    put(store, f"{prefix}a")
    assert f"{prefix}a" in [item.key for item in store.list("").items]


def test_keys_are_named_in_their_order(store: Store, prefix: str) -> None:
    """Whoever wants names alone need not read what stands there."""
    for key in ("b/2", "b/1", "b", "c"):
        put(store, prefix + key)
    assert list(store.keys(f"{prefix}b/")) == [f"{prefix}b/1", f"{prefix}b/2"]
    assert list(store.keys(f"{prefix}none/")) == []


def test_oldest_goes_by_creation_and_not_by_the_last_write(store: Store, prefix: str) -> None:
    """Who was there first stays first, however often it writes."""
    for key in ("c", "a", "b", "c"):
        put(store, prefix + key)
    assert list(store.oldest(prefix, 2)) == [f"{prefix}c", f"{prefix}a"]
    assert len(store.oldest(prefix, 9)) == 3


# --- transactions -----------------------------------------------------------------------------


def test_creation_succeeds_once(store: Store, prefix: str) -> None:
    """Revision 0 means that the key does not exist."""
    create = Txn(
        when=(ModifiedAt(key=f"{prefix}a", revision=0),), then=(Put(key=f"{prefix}a", value=b"1"),)
    )
    assert store.commit(create).succeeded
    assert not store.commit(create).succeeded


def test_compare_and_set_fails_when_somebody_else_wrote(store: Store, prefix: str) -> None:
    """The loser's value is nowhere."""
    key = f"{prefix}a"
    read = put(store, key, b"1")
    put(store, key, b"theirs")
    result = store.commit(
        Txn(when=(ModifiedAt(key=key, revision=read),), then=(Put(key=key, value=b"ours"),))
    )
    assert not result.succeeded
    item = store.get(key)
    assert item is not None and item.value == b"theirs"


def test_otherwise_is_done_when_a_compare_fails(store: Store, prefix: str) -> None:
    """The else-branch writes in the same step."""
    result = store.commit(
        Txn(
            when=(ModifiedAt(key=f"{prefix}a", revision=99_999_999),),
            then=(Put(key=f"{prefix}then", value=b"1"),),
            otherwise=(Put(key=f"{prefix}otherwise", value=b"1"),),
        )
    )
    assert not result.succeeded
    assert [item.key for item in store.list(prefix).items] == [f"{prefix}otherwise"]
    assert store.list(prefix).items[0].mod_revision == result.revision


def test_all_compares_must_hold(store: Store, prefix: str) -> None:
    """One that fails is enough."""
    revision = put(store, f"{prefix}a")
    compares = (ModifiedAt(key=f"{prefix}a", revision=revision), ModifiedAt(key=prefix, revision=1))
    assert not store.commit(Txn(when=compares)).succeeded
    assert store.commit(Txn(when=compares[:1])).succeeded


def test_one_transaction_is_one_revision(store: Store, prefix: str) -> None:
    """All its keys carry the revision that the result names."""
    puts = tuple(Put(key=f"{prefix}{i}", value=b"") for i in range(3))
    revision = store.commit(Txn(then=puts)).revision
    assert {item.mod_revision for item in store.list(prefix).items} == {revision}


def test_transaction_that_changes_nothing_makes_no_revision(store: Store, prefix: str) -> None:
    """To delete what is not there is no change."""
    before = put(store, f"{prefix}a")
    assert store.commit(Txn(then=(Delete(key=f"{prefix}b"),))).revision == before


def test_delete_of_a_prefix_takes_all_and_no_neighbour(store: Store, prefix: str) -> None:
    """A key equal to the prefix without its slash stays."""
    for key in ("b", "b/1", "b/2", "b0"):
        put(store, prefix + key)
    store.commit(Txn(then=(Delete(key=f"{prefix}b/", is_prefix=True),)))
    assert [item.key for item in store.list(prefix).items] == [f"{prefix}b", f"{prefix}b0"]


def test_delete_up_to_a_key_leaves_that_one_and_what_follows(store: Store, prefix: str) -> None:
    """What is old goes in one operation, however much it is."""
    for key in ("a", "b/07/x", "b/07/y", "b/08/x", "b/10/x", "c"):
        put(store, prefix + key)
    store.commit(Txn(then=(Delete(key=f"{prefix}b/", until=f"{prefix}b/08/"),)))
    left = [item.key.removeprefix(prefix) for item in store.list(prefix).items]
    assert left == ["a", "b/08/x", "b/10/x", "c"]


def test_key_written_twice_in_one_transaction_is_refused(store: Store, prefix: str) -> None:
    """Also in the branch that is not taken, so that the mistake is found at once."""
    twice = (Put(key=f"{prefix}a", value=b"1"), Put(key=f"{prefix}a", value=b"2"))
    with pytest.raises(Refused):
        store.commit(Txn(then=twice))
    with pytest.raises(Refused):
        store.commit(Txn(otherwise=twice))
    with pytest.raises(Refused):
        store.commit(Txn(then=(twice[0], Delete(key=prefix, is_prefix=True))))
    assert store.get(f"{prefix}a") is None


def test_ranged_compare_sees_a_newer_write_of_any_key(store: Store, prefix: str) -> None:
    """This is what guards a world against members that came meanwhile."""
    put(store, f"{prefix}a")
    read = put(store, f"{prefix}b")
    unchanged = Txn(when=(UnchangedSince(prefix=prefix, revision=read),))
    assert store.commit(unchanged).succeeded
    put(store, f"{prefix}a")
    assert not store.commit(unchanged).succeeded


def test_ranged_compare_holds_for_no_keys_and_after_deletions(store: Store, prefix: str) -> None:
    """Deletions are not seen; the caller compares otherwise where that matters."""
    unchanged = Txn(when=(UnchangedSince(prefix=prefix, revision=1),))
    assert store.commit(unchanged).succeeded
    put(store, f"{prefix}a")
    assert not store.commit(unchanged).succeeded
    store.commit(Txn(then=(Delete(key=f"{prefix}a"),)))
    assert store.commit(unchanged).succeeded


# --- leases -----------------------------------------------------------------------------------


def test_lease_is_granted_for_at_least_what_was_asked(store: Store) -> None:
    """And its deadline lies that far in the future, on our own clock."""
    before_s = boottime_s()
    lease = store.grant(5.0, nothing)
    assert lease.ttl_s >= 5.0
    assert before_s + lease.ttl_s <= lease.deadline_s <= boottime_s() + lease.ttl_s
    lease.revoke()


def test_lease_keeps_itself_alive(store: Store, prefix: str) -> None:
    """Its deadline moves on without any call of ours, past the first one."""
    lease = store.grant(3 * TTL_S, nothing)
    store.commit(Txn(then=(Put(key=f"{prefix}a", value=b"", lease=lease.id),)))
    first_s = lease.deadline_s
    wait_until(lambda: boottime_s() > first_s)
    assert lease.deadline_s > first_s
    assert store.get(f"{prefix}a") is not None
    lease.revoke()


def test_revoke_takes_the_leases_keys_at_once(store: Store, prefix: str) -> None:
    """Only those, and only once; a second call does nothing."""
    lease = store.grant(30.0, nothing)
    put(store, f"{prefix}other")
    store.commit(Txn(then=(Put(key=f"{prefix}a", value=b"", lease=lease.id),)))
    lease.revoke()
    lease.revoke()
    assert [item.key for item in store.list(prefix).items] == [f"{prefix}other"]
    assert lease.deadline_s <= boottime_s()


def test_key_rewritten_without_the_lease_outlives_it(store: Store, prefix: str) -> None:
    """A put decides anew what the key is attached to."""
    lease = store.grant(30.0, nothing)
    store.commit(Txn(then=(Put(key=f"{prefix}a", value=b"", lease=lease.id),)))
    put(store, f"{prefix}a")
    lease.revoke()
    assert store.get(f"{prefix}a") is not None


def test_closed_lease_runs_out(store: Store, prefix: str) -> None:
    """Nobody keeps it alive, so its keys go; the holder is not told, it knows."""
    lost = threading.Event()
    lease = store.grant(TTL_S, lost.set)
    store.commit(Txn(then=(Put(key=f"{prefix}a", value=b"", lease=lease.id),)))
    lease.close()
    wait_until(lambda: store.get(f"{prefix}a") is None)
    assert not lost.is_set()


def test_holder_of_a_lost_lease_is_told_once(backend: Backend, prefix: str) -> None:
    """The deadline is then over too, so nothing more is written."""
    calls: list[float] = []
    told = threading.Event()

    def on_lost() -> None:
        calls.append(boottime_s())
        told.set()

    lease = backend.store.grant(TTL_S, on_lost)
    backend.end_lease(lease.id)
    assert told.wait(LIMIT_S)
    lease.revoke()
    lease.close()
    assert len(calls) == 1
    assert lease.deadline_s <= boottime_s()


def test_put_with_a_dead_lease_is_fenced_and_writes_nothing(store: Store, prefix: str) -> None:
    """The whole transaction falls, also its other puts."""
    lease = store.grant(30.0, nothing)
    lease.revoke()
    with pytest.raises(Fenced):
        store.commit(
            Txn(
                then=(
                    Put(key=f"{prefix}a", value=b""),
                    Put(key=f"{prefix}b", value=b"", lease=lease.id),
                )
            )
        )
    assert store.list(prefix).items == ()
