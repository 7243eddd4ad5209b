"""How an agent learns of the jobs that there are."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from queue import Queue
from threading import Event

import pytest

from elasticd.control import job_submission
from elasticd.errors import Unavailable
from elasticd.records.codec import encode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import EntryKind, JobSpec
from elasticd.records.keys import Keys
from elasticd.records.member import NodeLabels
from elasticd.store.api import Delete, KeyValue, Put, Txn
from elasticd.store.memory import MemoryStore
from elasticd_agent.loop.effect_thread import EffectThread
from elasticd_agent.node.job_list import JobList
from tests.fixtures.patience import patience_s

KEYS = Keys()
SPEC = JobSpec(name=JobName("job"), uid="one", entry_kind=EntryKind.SCRIPT, entry="t.py")
NODE = NodeId("n")
WAIT_S = patience_s(30.0)
NONE: Mapping[str, str] = {}


class Limping(MemoryStore):
    """Answers the first reads of a key with Unavailable; its watches work."""

    failures = 2

    def get(self, key: str) -> KeyValue | None:
        if key == KEYS.spec(SPEC.name) and self.failures:
            self.failures -= 1
            raise Unavailable("etcd is away")
        return super().get(key)


@pytest.fixture
def effect_thread() -> Iterator[EffectThread]:
    effect_thread = EffectThread()
    yield effect_thread
    effect_thread.close(WAIT_S)


class Heard:
    """What a job list told."""

    def __init__(
        self,
        store: MemoryStore,
        effect_thread: EffectThread,
        *,
        only: JobName | None = None,
        labels: Mapping[str, str] = NONE,
    ) -> None:
        self.news = Queue[tuple[str, str]]()
        self.labels: list[Mapping[str, str]] = []
        self.known = Event()
        self.list = JobList(
            store,
            KEYS,
            effect_thread,
            lambda item: item(),
            only=only,
            node=NODE,
            labels=labels,
            labelled=lambda labels: self.labels.append(labels),
            appeared=lambda spec, order: self.news.put(("appeared", spec.uid)),
            vanished=lambda job: self.news.put(("vanished", job)),
            known=self.known.set,
            refused=lambda why: self.news.put(("refused", why)),
        )

    def next(self) -> tuple[str, str]:
        return self.news.get(timeout=WAIT_S)

    def close(self) -> None:
        for listing in self.list.listings:
            listing.close()


def resubmitted(store: MemoryStore) -> None:
    """The job ended and its name was used again."""
    store.commit(Txn(then=(Delete(key=KEYS.active_job(SPEC.name)),)))
    job_submission.submit(store, KEYS, replace(SPEC, uid="two", entry="new.py"))


def test_spec_that_could_not_be_read_is_read_again(effect_thread: EffectThread) -> None:
    """The watch tells of a job once; a short outage just then must not lose it for ever."""
    store = Limping()
    job_submission.submit(store, KEYS, SPEC)
    heard = Heard(store, effect_thread)
    assert heard.next() == ("appeared", "one")
    assert store.failures == 0
    heard.close()


def test_jobs_are_known_once_all_of_the_first_list_were_read(effect_thread: EffectThread) -> None:
    """A node that counted as ready before might be the next to lose the last state of one."""
    store = Limping()
    store.failures = 10**6
    job_submission.submit(store, KEYS, SPEC)
    heard = Heard(store, effect_thread)
    assert not heard.known.wait(0.2)
    store.failures = 0
    assert heard.next() == ("appeared", "one")
    assert heard.known.wait(WAIT_S)
    heard.close()
    none = Heard(MemoryStore(), effect_thread)
    assert none.known.wait(WAIT_S), "where there is no job"
    none.close()


def test_job_that_ends_while_it_is_asked_for_again_is_waited_for_by_nobody(
    effect_thread: EffectThread,
) -> None:
    """A retry looks on one thread whether the job is still there, and its end comes on another."""
    store = Limping()
    store.failures = 10**6
    job_submission.submit(store, KEYS, SPEC)
    heard = Heard(store, effect_thread)
    known = heard.list._known

    class EndsAfterTheLook(dict[JobName, str]):
        def get(self, job: JobName, default: object = None) -> object:  # type: ignore[override]
            found = super().get(job, default)
            if job in self:
                heard.list._remove(job)
            return found

    heard.list._known = EndsAfterTheLook(known)
    assert heard.next() == ("vanished", SPEC.name)
    assert heard.known.wait(WAIT_S)
    heard.close()


def test_name_that_was_used_again_is_noticed_after_a_gap(effect_thread: EffectThread) -> None:
    """Between two lists the first job ended and another took its name: both are told."""
    store = MemoryStore()
    job_submission.submit(store, KEYS, SPEC)
    heard = Heard(store, effect_thread)
    assert heard.next() == ("appeared", "one")
    store.drop_watches()
    resubmitted(store)
    store.compact()
    store.resume_watches()
    assert [heard.next(), heard.next()] == [("vanished", SPEC.name), ("appeared", "two")]
    heard.close()


def test_list_that_shows_what_is_known_tells_nothing(effect_thread: EffectThread) -> None:
    """It begins anew about once a minute, to repair what the watch missed."""
    store = MemoryStore()
    job_submission.submit(store, KEYS, SPEC)
    heard = Heard(store, effect_thread)
    assert heard.next() == ("appeared", "one")
    heard.list.listings[-1].take_due()
    store.drop_watches()
    store.compact()
    store.resume_watches()
    resubmitted(store)
    assert heard.next() == ("vanished", SPEC.name)
    assert heard.next() == ("appeared", "two")
    heard.close()


def test_job_that_asks_for_other_labels_is_none_of_this_nodes(effect_thread: EffectThread) -> None:
    """It competes for no slot here. More labels than it asks for do no harm."""
    store = MemoryStore()
    wanted = {"gpu": "h100", "zone": "a"}
    job_submission.submit(store, KEYS, replace(SPEC, node_labels=wanted))
    job_submission.submit(store, KEYS, replace(SPEC, name=JobName("of-all"), uid="any"))
    for labels in ({}, {"gpu": "h100"}, {"gpu": "a100", "zone": "a"}):
        heard = Heard(store, effect_thread, labels=labels)
        assert heard.next() == ("appeared", "any")
        heard.close()
    heard = Heard(store, effect_thread, labels={**wanted, "rack": "7"})
    assert {heard.next(), heard.next()} == {("appeared", "one"), ("appeared", "any")}
    heard.close()


def test_labels_that_come_later_bring_the_jobs_that_ask_for_them(
    effect_thread: EffectThread,
) -> None:
    """An operator knows the labels of a node in Kubernetes; its agent cannot ask for them."""
    store = MemoryStore()
    job_submission.submit(store, KEYS, replace(SPEC, node_labels={"gpu": "h100", "zone": "a"}))
    job_submission.submit(store, KEYS, replace(SPEC, name=JobName("of-all"), uid="any"))
    heard = Heard(store, effect_thread, labels={"gpu": "h100"})
    assert heard.next() == ("appeared", "any")
    key = KEYS.labels_of(NODE)
    for given in ({"zone": "b", "gpu": "a100"}, {"zone": "a", "gpu": "a100"}):
        store.commit(Txn(then=(Put(key=key, value=encode(NodeLabels(labels=given))),)))
    assert heard.next() == ("appeared", "one")
    assert heard.labels[-1] == {"gpu": "h100", "zone": "a"}, "its own flags come first"
    store.commit(Txn(then=(Delete(key=key),)))
    job_submission.submit(
        store, KEYS, replace(SPEC, name=JobName("again"), uid="2", node_labels={"zone": "a"})
    )
    job_submission.submit(store, KEYS, replace(SPEC, name=JobName("last"), uid="3"))
    assert heard.next() == ("appeared", "3"), "what it serves stays, and nothing comes anew"
    assert heard.labels[-1] == {"gpu": "h100"}
    heard.close()


def test_labels_that_come_while_a_job_is_read_are_not_missed(effect_thread: EffectThread) -> None:
    """It was neither left out by then, nor read with the new ones."""

    class Labelling(MemoryStore):
        def get(self, key: str) -> KeyValue | None:
            found = super().get(key)
            if key == KEYS.spec(SPEC.name) and super().get(label_key) is None:
                given = encode(NodeLabels(labels={"zone": "a"}))
                self.commit(Txn(then=(Put(key=label_key, value=given),)))
            return found

    label_key = KEYS.labels_of(NODE)
    store = Labelling()
    job_submission.submit(store, KEYS, replace(SPEC, node_labels={"zone": "a"}))
    heard = Heard(store, effect_thread)
    assert heard.next() == ("appeared", "one")
    heard.close()


def test_agent_of_one_job_says_which_labels_it_lacks(effect_thread: EffectThread) -> None:
    """It would wait for ever."""
    store = MemoryStore()
    job_submission.submit(store, KEYS, replace(SPEC, node_labels={"gpu": "h100"}))
    heard = Heard(store, effect_thread, only=SPEC.name)
    kind, why = heard.next()
    assert kind == "refused"
    assert why.endswith("takes nodes labelled gpu=h100: give this agent --label gpu=h100.")
    heard.close()
