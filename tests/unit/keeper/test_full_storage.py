"""A storage without room for all shares of a snapshot: what is of no use takes no room."""

from pathlib import Path

import pytest

from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.format.layout import fragment_name
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.errors import EnvironmentProblem
from tests.fixtures.cluster import until
from tests.unit.checkpoint.meddling import Meddling
from tests.unit.keeper.site import PATIENCE_S, Node, a_plan, a_snapshot, committed

PLANS = (a_plan(0, 3), a_plan(1, 3), a_plan(2, 3))
MADE = a_snapshot()


class Disk:
    """It has no room for the last share, as long as it is full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_full = True
        self.bucket = Meddling(FolderBucket(str(folder)), self._before)

    def _before(self, verb: str, name: str) -> None:
        if verb == "create" and self.is_full and "/00002-" in name:
            raise EnvironmentProblem("It is full: free some space.")

    @property
    def names(self) -> list[str]:
        """What is there of snapshots."""
        return sorted(str(each.relative_to(self.folder)) for each in self.folder.glob("steps/*/*"))


def failed(node: Node) -> None:
    """Take a snapshot for which there is no room."""
    node.take(MADE, *PLANS)
    job = node.saver.wait(MADE, PATIENCE_S)
    assert job is not None and job.why == "It is full: free some space."
    until(lambda: job.outcome is not None, lambda: "it goes on")


def test_shares_of_a_snapshot_without_room_are_deleted_where_all_are_of_one_node(
    tmp_path: Path,
) -> None:
    """Nobody can bring the rest; the next one finds the room that there was."""
    disk = Disk(tmp_path)
    node = Node(disk.bucket)
    node.is_on_one_node = True
    node.committer.open(1, 0)
    failed(node)
    assert disk.names == []
    disk.is_full = False
    node.take(a_snapshot(20), *PLANS, is_new=False)
    assert node.saver.wait(a_snapshot(20), PATIENCE_S) is not None
    assert [each.snapshot.step for each in committed(node.bucket)] == [20]
    node.saver.close(PATIENCE_S)


def test_shares_that_others_may_complete_stay(tmp_path: Path) -> None:
    """Another node may have the share for which this one found no room."""
    disk = Disk(tmp_path)
    node = Node(disk.bucket)
    node.committer.open(1, 0)
    failed(node)
    assert [name for name in disk.names if name.endswith(".json")] == [
        fragment_name(MADE, 0, 0),
        fragment_name(MADE, 1, 0),
    ]
    disk.is_full = False
    other = Node(FolderBucket(str(tmp_path)))
    other.take(MADE, PLANS[2])
    assert other.saver.wait(MADE, PATIENCE_S) is not None
    assert [each.snapshot for each in committed(other.bucket)] == [MADE]
    node.saver.close(PATIENCE_S)


@pytest.mark.parametrize("is_committed", [True, False])
def test_what_an_earlier_keeper_uploaded_stays(tmp_path: Path, is_committed: bool) -> None:
    """It has ended, and the same step was taken once more; its checkpoint can be read still."""
    disk = Disk(tmp_path)
    earlier = Node(FolderBucket(str(tmp_path)))
    earlier.committer.open(1, 0)
    earlier.take(MADE, *(PLANS if is_committed else PLANS[:2]))
    until((tmp_path / fragment_name(MADE, 1, 0)).exists, lambda: "no fragment")
    if is_committed:
        assert earlier.saver.wait(MADE, PATIENCE_S) is not None
    earlier.saver.close(0.0)
    before = disk.names
    node = Node(disk.bucket)
    node.is_on_one_node = True
    failed(node)
    assert set(before) <= set(disk.names)
    assert bool(CommitLog(node.bucket).state().last) == is_committed
    assert [each.snapshot for each in committed(node.bucket)] == [MADE] * is_committed
    node.saver.close(PATIENCE_S)
