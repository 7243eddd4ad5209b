"""One job and one node, with their records, for tests of what a person does to jobs."""

from elasticd.records.codec import decode, encode
from elasticd.records.ids import Incarnation, JobName, NodeId
from elasticd.records.job import Active, EntryKind, JobSpec, JobStatus
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.records.reason import Phase
from elasticd.store.api import Delete, Put, Txn
from elasticd.store.memory import MemoryStore

KEYS = Keys()
JOB = JobName("digits")
SPEC = JobSpec(
    name=JOB, uid="one", entry_kind=EntryKind.SCRIPT, entry="t.py", min_nodes=1, max_nodes=4
)
NODE = Node(
    node=NodeId("gpu-1"), incarnation=Incarnation("i"), host="h", address="a", port=1, slots=2
)


def put(store: MemoryStore, key: str, record: object) -> None:
    store.commit(Txn(then=(Put(key=key, value=encode(record)),)))


def end(store: MemoryStore, phase: Phase = Phase.SUCCEEDED) -> None:
    """What the agents do with the final status."""
    store.commit(
        Txn(
            then=(
                Put(key=KEYS.status(JOB), value=encode(JobStatus(phase=phase))),
                Delete(key=KEYS.active_job(JOB)),
            )
        )
    )


def active(store: MemoryStore) -> Active | None:
    item = store.get(KEYS.active_job(JOB))
    return decode(Active, item.value) if item is not None else None
