"""A watch that begins anew about once a minute."""

import pytest

from elasticd.rendezvous.decide import REREAD_S
from elasticd.store.api import Delete, KeyRange, KeysChanged, Put, Txn, WatchSnapshot
from elasticd.store.memory import MemoryStore
from elasticd_agent.loop import resync_watch
from elasticd_agent.loop.resync_watch import ResyncWatch, drain_listing


def test_event_that_the_watch_missed_is_found_by_the_next_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """etcd has lost events of watches that stayed open."""
    now_s, heard = [1000.0], list[WatchSnapshot | KeysChanged]()
    monkeypatch.setattr(resync_watch, "now_s", lambda: now_s[0])
    store = MemoryStore()
    watch = ResyncWatch(lambda: store.watch(KeyRange(key="a/", is_prefix=True), heard.append))
    store.drop_watches()
    store.commit(Txn(then=(Put(key="a/job", value=b"1"),)))
    due_s = watch.wake_s
    assert 0.75 * REREAD_S <= due_s - now_s[0] <= 1.25 * REREAD_S
    watch.take_due()
    assert len(heard) == 1
    now_s[0] = due_s
    watch.take_due()
    store.resume_watches()
    last = heard[-1]
    assert isinstance(last, WatchSnapshot) and [item.key for item in last.items] == ["a/job"]
    assert watch.wake_s > due_s
    watch.close()


def test_wish_to_drain_is_told_when_it_comes_and_when_it_goes() -> None:
    """Also where it stood before the agent began."""
    store, told = MemoryStore(), list[bool]()
    store.commit(Txn(then=(Put(key="drains/a", value=b"1"),)))
    watch = drain_listing(store, "drains/a", told.append)
    store.commit(Txn(then=(Delete(key="drains/a"),)))
    store.commit(Txn(then=(Put(key="drains/a", value=b"2"),)))
    assert told == [True, False, True]
    watch.close()
