"""Records of a job that lost a worker, in a store of this process or in an etcd."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from elasticd.control.report.change_report import ChangeReport
from elasticd.control.report.report import JobReport
from elasticd.dashboard.job_view import Sentences
from elasticd.records.account.incident import Incident
from elasticd.records.account.late import LateNode, LateNodes
from elasticd.records.codec import encode
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Nonce, Rank, Slot
from elasticd.records.job import EntryKind, JobSpec, JobStatus
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.records.reason import Phase, Reason
from elasticd.store.api import Put, Store, StoreSettings, Txn
from elasticd.store.memory import MemoryStore

__all__ = [
    "BEGAN_S",
    "HOSTILE",
    "HUNG",
    "JOB",
    "KEYS",
    "SAY",
    "SPEC",
    "Place",
    "be_late",
    "change_world",
    "fill",
    "filled",
    "opened",
    "put",
]

KEYS = Keys()
JOB = JobName("digits")
BEGAN_S = 1_700_000_000.0
HOSTILE = "<script>document.title = 'ran'</script><img src=x onerror=alert(1)>"
SPEC = JobSpec(name=JOB, uid="u", entry_kind=EntryKind.SCRIPT, entry="train.py", max_nodes=4)
CULPRIT = Failure(
    node=NodeId("node-1"),
    incarnation=Incarnation("i"),
    host="host-1",
    generation=Generation(1),
    rank=Rank(1),
    local_rank=0,
    slot=Slot(0),
    nonce=Nonce(1),
    exit_code=1,
    exception=f"ValueError: {HOSTILE}",
    where="/x/train.py:12",
    traceback=f"Traceback (most recent call last):\n  ...\nValueError: {HOSTILE}",
    log_path="/runs/digits/gen-1/rank-1.err",
)
HUNG = replace(
    CULPRIT,
    exit_code=None,
    signal="SIGKILL",
    exception="The process is stopped by a signal.",
    where="",
    traceback="",
    log_path=f"/runs/{JOB}/incidents/gen-1.node-1.stacks.txt",
    is_hung=True,
)
"""A rank of generation 1 whose node wrote stacks before it ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A source of records, as the command line opens them."""

    store: Store
    keys: Keys = KEYS
    settings: StoreSettings | None = None
    is_archive: bool = False
    run_folder: Path = Path("/nowhere")


def _sentence(change: ChangeReport) -> str:
    culprit = change.culprit
    why = f": rank {culprit.rank}, {culprit.exception}" if culprit is not None else ""
    return f"generation {change.generation}: {change.nodes} nodes ({change.reason.value}{why})"


def _ending(report: JobReport) -> str:
    return f"job {report.status.phase.value}"


def _late(report: JobReport, node: LateNode) -> str:
    return f"{node.node} {'is' if node in report.late_now else 'was'} late by {node.ratio}"


SAY = Sentences(change=_sentence, ending=_ending, late=_late)


def filled(phase: Phase = Phase.WAITING, into: MemoryStore | None = None) -> MemoryStore:
    """Two nodes, of which one lost its worker and came back."""
    store = MemoryStore() if into is None else into
    fill(store, phase)
    return store


def fill(store: Store, phase: Phase) -> None:
    """Write the same to any store."""
    put(store, KEYS.spec(JOB), SPEC)
    put(store, KEYS.status(JOB), JobStatus(phase=phase, generation=Generation(1), restarts=1))
    for name in ("node-0", "node-1"):
        node = Node(
            node=NodeId(name),
            incarnation=Incarnation("i"),
            host=f"host of {name}",
            address="127.0.0.1",
            port=1,
            slots=2,
        )
        put(store, KEYS.node(node.node), node)
    change_world(store, 1, Reason.FIRST_WORLD, ("node-0", "node-1"), 0.0)
    change_world(store, 2, Reason.WORKER_FAILED, ("node-0",), 60.0)
    change_world(store, 3, Reason.JOINED, ("node-0", "node-1"), 90.0)


def change_world(
    store: Store,
    generation: int,
    reason: Reason,
    members: Sequence[str],
    after_s: float,
    culprit: Failure | None = None,
) -> None:
    """Have these nodes tell of a generation."""
    for name in members:
        told = Incident(
            generation=Generation(generation),
            node=NodeId(name),
            host=f"host of {name}",
            reason=reason,
            nodes=len(members),
            world_size=len(members),
            phases_s={"agree": 0.01, "step": 0.1},
            step=100 * generation,
            at_unix_s=BEGAN_S + after_s,
        )
        if reason is Reason.WORKER_FAILED:
            told = replace(told, culprit=CULPRIT)
        if culprit is not None:
            told = replace(told, culprit=culprit)
        put(store, KEYS.incident(JOB, Generation(generation), NodeId(name)), told)


def be_late(store: MemoryStore, *nodes: LateNode) -> None:
    """Have the node of rank 0 find these late."""
    put(store, KEYS.late(JOB), LateNodes(nodes=nodes))


def put(store: Store, key: str, record: object) -> None:
    store.commit(Txn(then=(Put(key=key, value=encode(record)),)))


@contextmanager
def opened(
    store: Store, *, is_archive: bool = False, run_folder: Path = Path("/nowhere")
) -> Iterator[list[Place]]:
    yield [Place(store=store, is_archive=is_archive, run_folder=run_folder)]
