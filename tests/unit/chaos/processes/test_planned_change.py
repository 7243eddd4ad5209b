"""Planned changes are made, also where etcd is away for a moment."""

import threading

import pytest

from chaos.error import NotNow
from chaos.processes import planned_change
from chaos.processes.planned_change import PlannedChanges
from elasticd.errors import NotFound, Unavailable
from elasticd.records.codec import decode, encode
from elasticd.records.ids import Incarnation, JobName, NodeId
from elasticd.records.job import EntryKind, JobSpec, Want
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.store.api import Put, Txn, TxnResult
from elasticd.store.memory import MemoryStore
from tests.fixtures.patience import patience_s

KEYS, JOB = Keys(), JobName("job")
PATIENCE_S = patience_s(60.0)


class Line(MemoryStore):
    """A store that does not answer for some calls."""

    away = 0

    def commit(self, txn: Txn) -> TxnResult:
        if self.away:
            self.away -= 1
            raise Unavailable("nobody answers")
        return super().commit(txn)


@pytest.fixture
def line() -> Line:
    store = Line()
    spec = JobSpec(name=JOB, uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py", max_nodes=3)
    node = Node(
        node=NodeId("n1"),
        incarnation=Incarnation("i.1"),
        host="h",
        address="127.0.0.1",
        port=1,
        slots=1,
    )
    puts = (
        Put(key=KEYS.spec(JOB), value=encode(spec)),
        Put(key=KEYS.active_job(JOB), value=b"u"),
        Put(key=KEYS.node(NodeId("n1")), value=encode(node)),
    )
    store.commit(Txn(then=puts))
    return store


def test_a_job_is_scaled_when_etcd_is_back(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_change, "PATIENCE_S", PATIENCE_S)
    line.away = 1
    changes = PlannedChanges(lambda: line, JOB)
    with pytest.raises(NotNow, match="nobody answers"):
        changes.scale(2)
    changes.scale(2)
    (item,) = line.list(KEYS.wants(JOB)).items
    assert decode(Want, item.value).nodes == 2


def test_a_request_that_etcd_keeps_waiting_keeps_nobody_else(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made once, and its end is heard by who asks again."""
    monkeypatch.setattr(planned_change, "PATIENCE_S", 0.0)
    is_back = threading.Event()

    def opened() -> Line:
        assert is_back.wait(PATIENCE_S)
        return line

    changes = PlannedChanges(opened, JOB)
    for _ in range(3):
        with pytest.raises(NotNow, match="scale 2"):
            changes.scale(2)
    is_back.set()
    monkeypatch.setattr(planned_change, "PATIENCE_S", PATIENCE_S)
    changes.scale(2)
    changes.close()


def test_a_node_is_drained_and_taken_back_and_that_twice_does_no_harm(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned_change, "PATIENCE_S", PATIENCE_S)
    changes = PlannedChanges(lambda: line, JOB)
    changes.drain("n1")
    assert line.get(KEYS.drain(NodeId("n1"))) is not None
    changes.undrain("n1")
    changes.undrain("n1")
    assert line.get(KEYS.drain(NodeId("n1"))) is None


def test_a_job_that_is_over_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scaling is taken back in the end, whatever came of it."""
    monkeypatch.setattr(planned_change, "PATIENCE_S", PATIENCE_S)
    PlannedChanges(MemoryStore, JOB).scale(3)


def test_what_is_not_there_and_who_does_not_answer_is_told(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned_change, "PATIENCE_S", PATIENCE_S)
    changes = PlannedChanges(lambda: line, JOB)
    with pytest.raises(NotFound):
        changes.drain("n9")
    line.away = 1
    with pytest.raises(NotNow, match="nobody answers"):
        changes.drain("n1")
