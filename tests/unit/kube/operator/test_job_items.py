"""The records of jobs that the operator keeps: as many as it decides by, however large a job is."""

import pytest

from elasticd.control.report.report import job_report
from elasticd.kube.operator.job_items import INCIDENTS_KEPT, JobItems
from elasticd.kube.resource.job_records import JobRecords, job_records
from elasticd.records.account.incident import Incident
from elasticd.records.codec import encode
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Nonce, Rank, Slot
from elasticd.records.job import EntryKind, JobSpec
from elasticd.records.keys import Keys
from elasticd.records.reason import Reason
from elasticd.store.api import Delete, KeyValue, Put, Txn
from elasticd.store.memory import MemoryStore
from elasticd.store.watch_cache import RENEW_S
from tests.fixtures.operator_scene import OperatorScene

KEYS, JOB = Keys(), JobName("team.a")
NODES, GENERATIONS = 100, 4
CULPRIT = Failure(
    generation=Generation(3),
    node=NodeId("n7"),
    incarnation=Incarnation("i.1"),
    host="n7",
    rank=Rank(7),
    local_rank=0,
    slot=Slot(0),
    nonce=Nonce(1),
    signal="SIGKILL",
)


def written(generation: int, number: int, *, lost: bool = False) -> Put:
    """The nodes 7 to 9 write who was lost, or who failed first."""
    is_lost = generation == 2 or lost
    knows = 7 <= number <= 9
    incident = Incident(
        generation=Generation(generation),
        node=NodeId(f"n{number}"),
        host=f"n{number}",
        reason=Reason.NODE_LOST if is_lost else Reason.WORKER_KILLED,
        culprit=CULPRIT if knows and not is_lost else None,
        lost=(NodeId("n99"),) if knows and is_lost else (),
        world_size=NODES,
        nodes=NODES,
        phases_s={"agree": float(number)},
        note='"culprit":null,"lost":[]' if knows else "",
    )
    key = KEYS.incident(JOB, Generation(generation), NodeId(f"n{number}"))
    return Put(key=key, value=encode(incident))


def large() -> MemoryStore:
    store = MemoryStore()
    spec = JobSpec(name=JOB, uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py", max_nodes=NODES)
    store.commit(Txn(then=(Put(key=KEYS.spec(JOB), value=encode(spec)),)))
    for generation in range(1, GENERATIONS + 1):
        write(store, generation)
    return store


def write(store: MemoryStore, generation: int) -> None:
    store.commit(Txn(then=tuple(written(generation, number) for number in range(NODES))))


def read(items: dict[str, KeyValue]) -> JobRecords:
    report = job_report(items.values(), KEYS, JOB)
    assert report is not None
    return job_records(report, is_active=True)


def shown(found: JobRecords) -> object:
    changes = [
        (one.generation, one.reason, one.culprit, one.lost, one.nodes, one.world_size)
        for one in found.changes
    ]
    return changes, dict(found.losses_by_reason)


@pytest.mark.parametrize("is_watched", [True, False])
def test_of_a_large_job_few_incidents_are_kept_and_nothing_is_missed(is_watched: bool) -> None:
    """A job of 250 nodes has up to 50,000, and they were all decoded for each of its changes."""
    store = MemoryStore() if is_watched else large()
    kept = JobItems(store, KEYS, lambda: None)
    if is_watched:
        for item in large().list("").items:
            store.commit(Txn(then=(Put(key=item.key, value=item.value),)))
    everything = {item.key: item for item in store.list(KEYS.job(JOB)).items}
    items = dict((kept.read() or {})[JOB])
    assert shown(read(items)) == shown(read(everything))
    assert len(everything) == 1 + GENERATIONS * NODES
    assert len(items) <= 1 + GENERATIONS * (INCIDENTS_KEPT + 3)


def test_what_is_written_again_or_removed_is_followed() -> None:
    """A proposer writes with the world, and once more with what it measured; old ones are
    removed.
    """
    store = large()
    kept = JobItems(store, KEYS, lambda: None)
    for _ in range(3):
        store.commit(Txn(then=(written(3, 7, lost=True), written(3, 0))))
        store.commit(Txn(then=(written(3, 7), written(3, 0))))
    prefix = KEYS.incidents_of(JOB, Generation(4))
    store.commit(Txn(then=(Delete(key=prefix, is_prefix=True),)))
    everything = {item.key: item for item in store.list(KEYS.job(JOB)).items}
    assert shown(read(dict((kept.read() or {})[JOB]))) == shown(read(everything))
    write(store, 4)
    items = (kept.read() or {})[JOB]
    assert len([key for key in items if key.startswith(prefix)]) == INCIDENTS_KEPT + 3
    store.commit(Txn(then=(Delete(key=KEYS.job(JOB), is_prefix=True),)))
    assert kept.read() == {}


def test_event_that_a_watch_missed_is_found_by_the_next_list() -> None:
    """etcd has lost events of watches that stayed open: an ElasticJob would run for ever."""
    scene = OperatorScene()
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    (job,) = scene.jobs
    scene.run(job)
    scene.converge(operator)
    scene.store.drop_watches()
    scene.end(job)
    for watch in scene.store._watches:
        watch.missed.clear()
    scene.store.resume_watches()
    scene.converge(operator)
    assert scene.status()["phase"] == "Running", "nobody has told of it"
    scene.now_s += RENEW_S
    scene.converge(operator)
    assert scene.status()["phase"] == "Succeeded"
    scene.close()
