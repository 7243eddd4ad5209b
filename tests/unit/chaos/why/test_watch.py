"""What `why` is seen to say, from the records that agents write: it goes red where they lie."""

import pytest

from chaos.history.lineage import trace
from chaos.history.records import Told
from chaos.history.recovery import commits
from chaos.site import JOB
from chaos.verdict.finding import Finding
from chaos.why.rule import judged_causes
from chaos.why.watch import WhyWatch
from elasticd.records.account.incident import Incident
from elasticd.records.codec import encode
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Nonce, Rank, Slot
from elasticd.records.job import EntryKind, JobSpec
from elasticd.records.keys import Keys
from elasticd.records.reason import Reason
from elasticd.store.api import Put, Txn
from elasticd.store.memory import MemoryStore
from tests.unit.chaos.play import Play

KEYS = Keys()


class Cluster:
    """A store in which agents write, and one who reads what `why` says."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        spec = JobSpec(name=JobName(JOB), uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py")
        self._put(KEYS.spec(JobName(JOB)), spec)
        self.said: list[Told] = []
        self.watch = WhyWatch(self.store, self.said.append)

    def incident(self, generation: int, node: str, reason: Reason, **more: object) -> None:
        number = Generation(generation)
        record = Incident(generation=number, node=NodeId(node), host="h", reason=reason, **more)  # type: ignore[arg-type]
        self._put(KEYS.incident(JobName(JOB), number, NodeId(node)), record)

    def _put(self, key: str, record: object) -> None:
        self.store.commit(Txn(then=(Put(key=key, value=encode(record)),)))


def failure(signal: str = "SIGKILL") -> Failure:
    return Failure(
        node=NodeId("n1"),
        incarnation=Incarnation("life.1"),
        host="h",
        generation=Generation(1),
        rank=Rank(1),
        local_rank=0,
        slot=Slot(0),
        nonce=Nonce(1),
        signal=signal,
    )


def judged(kind: str, signal: str) -> Finding:
    """Rank 1 on n1 is struck; of the three that tell of it one names it."""
    cluster, play = Cluster(), Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault(kind, node="n1", pid=12)
    play.generation(2, [11], base=5, steps=3)
    cluster.incident(1, "n0", Reason.FIRST_WORLD)
    culprit = failure(signal)
    cluster.incident(2, "n0", culprit.reason, culprit=culprit)
    cluster.incident(2, "n2", culprit.reason)
    cluster.watch.look()
    at_s = play.now_s
    for told in cluster.said:
        play.told(told.generation, told.reason, after_s=at_s - play.now_s)
        values = {name: getattr(told, name) for name in Told.__slots__ if name != "at_s"}
        play.change(Told, values, generation=told.generation)
    history = play.history()
    (finding,) = judged_causes(history, commits(trace(history).rounds), 1.0, 2.0)
    return finding


@pytest.mark.parametrize(
    ("kind", "signal"),
    [
        ("worker-kill", "SIGKILL"),
        ("worker-term", "SIGTERM"),
        ("worker-crash", "SIGSEGV"),
    ],
)
def test_a_worker_that_was_struck_is_named_by_what_agents_wrote(kind: str, signal: str) -> None:
    assert judged(kind, signal).holds


def test_another_end_than_it_had_is_found() -> None:
    assert not judged("worker-kill", "SIGSEGV").holds


def test_what_is_told_again_otherwise_is_noted_again_and_else_once() -> None:
    cluster = Cluster()
    cluster.incident(1, "n0", Reason.FIRST_WORLD)
    cluster.incident(2, "n0", Reason.NODE_DEAD)
    cluster.watch.look()
    cluster.watch.look()
    assert [told.generation for told in cluster.said] == [1, 2]
    cluster.incident(2, "n0", Reason.NODE_DEAD, lost=(NodeId("n1"),))
    cluster.watch.look()
    assert [told.lost for told in cluster.said[2:]] == [("n1",)]


def test_a_job_that_is_not_there_yet_says_nothing() -> None:
    said: list[Told] = []
    WhyWatch(MemoryStore(), said.append).look()
    assert said == []
