"""How an agent learns of the jobs that there are."""

from collections.abc import Iterator
from dataclasses import replace
from queue import Queue

import pytest

from elasticd.control import jobs
from elasticd.errors import Unavailable
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec
from elasticd.records.keys import Keys
from elasticd.store.api import Delete, KeyValue, Txn
from elasticd.store.memory import MemoryStore
from elasticd_agent.courier import Courier
from elasticd_agent.job_list import JobList

KEYS = Keys()
SPEC = JobSpec(name=JobName("job"), uid="one", entry_kind=EntryKind.SCRIPT, entry="t.py")
WAIT_S = 30.0


class Limping(MemoryStore):
    """Answers the first reads of a key with Unavailable; its watches work."""

    failures = 2

    def get(self, key: str) -> KeyValue | None:
        if key == KEYS.spec(SPEC.name) and self.failures:
            self.failures -= 1
            raise Unavailable("etcd is away")
        return super().get(key)


@pytest.fixture
def courier() -> Iterator[Courier]:
    courier = Courier()
    yield courier
    courier.close(WAIT_S)


class Heard:
    """What a job list told."""

    def __init__(self, store: MemoryStore, courier: Courier) -> None:
        self.news = Queue[tuple[str, str]]()
        self.list = JobList(
            store,
            KEYS,
            courier,
            lambda item: item(),
            only=None,
            appeared=lambda spec, order: self.news.put(("appeared", spec.uid)),
            vanished=lambda job: self.news.put(("vanished", job)),
            refused=lambda why: None,
        )

    def next(self) -> tuple[str, str]:
        return self.news.get(timeout=WAIT_S)


def resubmitted(store: MemoryStore) -> None:
    """The job ended and its name was used again."""
    store.commit(Txn(then=(Delete(key=KEYS.active_job(SPEC.name)),)))
    jobs.submit(store, KEYS, replace(SPEC, uid="two", entry="new.py"))


def test_spec_that_could_not_be_read_is_read_again(courier: Courier) -> None:
    """The watch tells of a job once; a short outage just then must not lose it for ever."""
    store = Limping()
    jobs.submit(store, KEYS, SPEC)
    heard = Heard(store, courier)
    assert heard.next() == ("appeared", "one")
    assert store.failures == 0
    heard.list.listing.close()


def test_name_that_was_used_again_is_noticed_after_a_gap(courier: Courier) -> None:
    """Between two lists the first job ended and another took its name: both are told."""
    store = MemoryStore()
    jobs.submit(store, KEYS, SPEC)
    heard = Heard(store, courier)
    assert heard.next() == ("appeared", "one")
    store.drop_watches()
    resubmitted(store)
    store.compact()
    store.resume_watches()
    assert [heard.next(), heard.next()] == [("vanished", SPEC.name), ("appeared", "two")]
    heard.list.listing.close()


def test_list_that_shows_what_is_known_tells_nothing(courier: Courier) -> None:
    """It begins anew about once a minute, to repair what the watch missed."""
    store = MemoryStore()
    jobs.submit(store, KEYS, SPEC)
    heard = Heard(store, courier)
    assert heard.next() == ("appeared", "one")
    heard.list.listing.take_due()
    store.drop_watches()
    store.compact()
    store.resume_watches()
    resubmitted(store)
    assert heard.next() == ("vanished", SPEC.name)
    assert heard.next() == ("appeared", "two")
    heard.list.listing.close()
