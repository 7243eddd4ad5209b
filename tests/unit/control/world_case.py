"""Worlds and what agents write, for the tests of this folder."""

from elasticd.records.codec import encode
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Nonce, Rank, Slot
from elasticd.records.job import EntryKind, JobSpec, JobStatus
from elasticd.records.keys import Keys
from elasticd.records.member import Member, Node, SlotOffer, StoreAddress
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World, WorldNode, WorldWorker
from elasticd.store.api import Delete, Put, Txn
from elasticd.store.memory import MemoryStore

KEYS = Keys()
JOB = JobName("j")
SPEC = JobSpec(name=JOB, uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py", is_local=True)


def world(generation: int, *nodes: str, reason: Reason = Reason.FIRST_WORLD) -> World:
    return World(
        generation=Generation(generation),
        nodes=tuple(
            WorldNode(
                node=NodeId(name),
                incarnation=Incarnation("i"),
                host=f"host-{name}",
                address="127.0.0.1",
                port=1,
                first_rank=Rank(number),
                workers=(WorldWorker(slot=Slot(0), nonce=Nonce(generation)),),
            )
            for number, name in enumerate(nodes)
        ),
        store=StoreAddress(host="127.0.0.1", port=1),
        reason=reason,
    )


def node(name: str, http_port: int = 0) -> Node:
    return Node(
        node=NodeId(name),
        incarnation=Incarnation("i"),
        host=f"host-{name}",
        address="127.0.0.1",
        port=1,
        slots=1,
        http_port=http_port,
    )


def member(name: str) -> Member:
    """A node that offers one slot to the job."""
    return Member(
        node=NodeId(name),
        incarnation=Incarnation("i"),
        host=f"host-{name}",
        address="127.0.0.1",
        port=1,
        slots=(SlotOffer(slot=Slot(0), nonce=Nonce(1)),),
    )


def put(store: MemoryStore, key: str, record: object) -> None:
    store.commit(Txn(then=(Put(key=key, value=encode(record)),)))


def make_newer(store: MemoryStore, key: str) -> None:
    """Write the record of a key as an elasticd of a newer major schema would."""
    item = store.get(key)
    assert item is not None
    value = item.value.replace(b'"schema":"1.0"', b'"schema":"2.0"')
    assert value != item.value
    store.commit(Txn(then=(Put(key=key, value=value),)))


def end(store: MemoryStore, phase: Phase = Phase.SUCCEEDED) -> None:
    """What the agents do with the final status."""
    status = Put(key=KEYS.status(JOB), value=encode(JobStatus(phase=phase)))
    store.commit(Txn(then=(status, Delete(key=KEYS.active_job(JOB)))))
