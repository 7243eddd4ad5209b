"""Records of a newer schema: what cannot be read is left out and named, and hides nothing else."""

from dataclasses import replace

import pytest

from elasticd.control import job_submission
from elasticd.control.report.node_report import node_reports
from elasticd.control.report.occupancy import read_cluster
from elasticd.control.report.report import job_reports
from elasticd.control.report.unreadable import UnreadableRecords
from elasticd.errors import NotSupported
from elasticd.records.ids import JobName, NodeId
from elasticd.records.member import Drain
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC, make_newer, member, node, put

OTHER = JobName("other")


@pytest.fixture
def store() -> MemoryStore:
    """Two jobs and two nodes, and the spec of one job and the record of one node are newer."""
    made = MemoryStore()
    for name in (JOB, OTHER):
        job_submission.submit(made, KEYS, replace(SPEC, name=name, uid=name))
        put(made, KEYS.member(name, NodeId("a")), member("a"))
    for each in "ab":
        put(made, KEYS.node(NodeId(each)), node(each))
    make_newer(made, KEYS.spec(JOB))
    make_newer(made, KEYS.node(NodeId("b")))
    return made


def test_job_that_a_newer_elasticd_wrote_hides_no_other(store: MemoryStore) -> None:
    """It is named, with what to do."""
    unreadable = UnreadableRecords()
    found = job_reports(store.list(KEYS.jobs).items, KEYS, unreadable)
    assert [report.spec.name for report in found] == [OTHER]
    assert unreadable.sentence == (
        "Job j is left out: The JobSpec record in etcd has schema 2.0, this elasticd knows 1.x: "
        "upgrade elasticd on this machine, or use another --cluster."
    )


def test_node_that_a_newer_elasticd_wrote_hides_no_other(store: MemoryStore) -> None:
    """A drain that cannot be read is one all the same."""
    put(store, KEYS.drain(NodeId("a")), Drain(why="disk"))
    make_newer(store, KEYS.drain(NodeId("a")))
    unreadable = UnreadableRecords()
    cluster = read_cluster(store, KEYS, unreadable)
    assert [each.node for each in cluster.nodes] == ["a"] and cluster.drained == {"a"}
    assert [use.job for use in cluster.uses] == [OTHER]
    (report,) = node_reports(
        store.list(KEYS.nodes).items, store.list(KEYS.drains).items, KEYS, unreadable
    )
    assert report.node.node == "a" and report.is_drained
    assert unreadable.clause.startswith("job j, the reason of the drain of a, node b are left out")


def test_only_some_are_named() -> None:
    """In the middle of an upgrade there may be hundreds."""
    unreadable = UnreadableRecords()
    assert unreadable.sentence == unreadable.clause == ""
    for number in range(5):
        with unreadable.left_out(f"node n{number}"):
            raise NotSupported(f"The record {number} is newer.")
    assert unreadable.sentence == (
        "Node n0, node n1, node n2 and 2 more are left out: The record 0 is newer."
    )


def test_node_that_cannot_be_read_may_have_room_for_a_job(store: MemoryStore) -> None:
    """A job is refused only if all nodes are known to be too small."""
    job_submission.check_room(store, KEYS, replace(SPEC, workers_per_node=9))
