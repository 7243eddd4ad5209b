"""A share that a worker of one node was to hand over: its keeper tells those of other nodes."""

import secrets
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.share_loss import is_lost
from elasticd.checkpoint.commit.upload import UploadShare
from elasticd.checkpoint.format.layout import fragment_name, loss_name
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.errors import Unavailable
from elasticd.keeper import saver as saver_module
from elasticd.keeper.checkpoint_finder import CheckpointFinder
from elasticd.keeper.client import Client
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.memory.share_record import ShareRecord
from elasticd.keeper.service import Service
from elasticd.keeper.wire import message as ms
from tests.fixtures.cluster import until
from tests.unit.checkpoint.meddling import Meddling
from tests.unit.keeper.site import PATIENCE_S, Node, a_plan, a_snapshot, committed

FIRST = replace(a_plan(0, 2), is_only_copy=True)
SECOND = replace(a_plan(1, 2), is_only_copy=True)
OLDER, MADE = a_snapshot(10), a_snapshot(20)
RESTART_S = 300.0
"""How long rank 0 of a generation that begins waits for what is being saved."""


class Worker:
    """A process over the socket of its node's keeper, with one share of two."""

    def __init__(self, name: str, plan: ms.Plan) -> None:
        self.client, self.plan = Client(name), plan
        self.client.ask(ms.Plans(plans=(plan,)), ms.Done, timeout_s=PATIENCE_S)
        self._known: list[SharedMemory] = []

    def claim(self, step: int) -> int:
        question = ms.Claim(plan=self.plan.id, snapshot=a_snapshot(step))
        said, memory = self.client.ask_memory(question, ms.Claimed)
        self._known += [memory] if memory is not None else []
        self._known[said.buffer].view[:] = bytes([step]) * self._known[said.buffer].size
        return said.buffer

    def take(self, step: int) -> None:
        question = ms.SaveSnapshot(
            plan=self.plan.id, buffer=self.claim(step), snapshot=a_snapshot(step), epoch=0,
            world_size=2, skeleton="{}",
        )  # fmt: skip
        self.client.ask(question, ms.Done, timeout_s=PATIENCE_S)


def serve(node: Node) -> str:
    """Serve the node's socket; return its name."""
    finder = CheckpointFinder(node.bucket, node.committer, parallel=2)
    service = Service(
        share_memory=node.share_memory, saver=node.saver, finder=finder, job="job", uid="uid"
    )
    name = f"elasticd-test-{secrets.token_hex(8)}"
    threading.Thread(target=service.listen, args=(name,), daemon=True).start()
    return name


def a_claim(node: Node, plan: ms.Plan = SECOND, worker: int = 1) -> None:
    """A worker claims a buffer for its share."""
    node.share_memory.plan(worker, (plan,))
    node.share_memory.claim(worker, plan.id)
    node.saver.claims.claim(MADE, plan)


def is_told(node: Node, plan: ms.Plan = SECOND) -> bool:
    """Return whether the loss of this holder's share is in the storage."""
    return Path(node.bucket.url.removeprefix("file://")).joinpath(
        loss_name(MADE, plan.share, plan.holder)
    ).exists()  # fmt: skip


@pytest.mark.parametrize("is_handed_over", [False, True], ids=["killed", "slow upload"])
def test_restore_waits_for_another_nodes_share_only_if_it_comes(
    tmp_path: Path, is_handed_over: bool
) -> None:
    """Both nodes' workers end in the middle of a save; the next generation asks on both."""
    goes_on = threading.Event()

    def before(verb: str, name: str) -> None:
        if verb == "create" and name.startswith(f"{MADE.folder}/00001-0-") and "lost" not in name:
            assert goes_on.wait(PATIENCE_S)

    near = Node(FolderBucket(str(tmp_path)))
    far = Node(Meddling(FolderBucket(str(tmp_path)), before))
    near.committer.open(1, 0)
    names = serve(near), serve(far)
    first, second = Worker(names[0], FIRST), Worker(names[1], SECOND)
    for each in (first, second):
        each.take(10)
    durable = ms.WaitDurable(snapshot=OLDER, timeout_s=PATIENCE_S)
    assert first.client.ask(durable, ms.Durability).is_durable
    first.take(20)
    if is_handed_over:
        second.take(20)
    else:
        second.claim(20)
    for each in (first, second):
        each.client.close()
    other, joined = Client(names[1]), list[ms.Joined]()
    question = ms.Join(generation=2, timeout_s=RESTART_S)
    asked = threading.Thread(target=lambda: joined.append(other.ask(question, ms.Joined)))
    asked.start()
    until(lambda: not far.share_memory._places, lambda: "its worker has left")
    found = list[ms.Found]()
    asker = Client(names[0])
    find = ms.Find(settle_s=RESTART_S, generation=2)
    finds = threading.Thread(target=lambda: found.append(asker.ask(find, ms.Found)))
    finds.start()
    finds.join(2 * saver_module.LOOK_OTHERS_S if is_handed_over else PATIENCE_S)
    assert finds.is_alive() == is_handed_over
    goes_on.set()
    finds.join(PATIENCE_S)
    newest = MADE if is_handed_over else OLDER
    assert [each.snapshot for each in found] == [newest]
    asker.ask(ms.Open(generation=2, step=newest.step, run=1), ms.Opened)
    asked.join(PATIENCE_S)
    assert [each.number for each in joined] == [found[0].number]
    assert [each.snapshot for each in committed(near.bucket)][-1] == newest
    for node in (near, far):
        node.saver.close(0.0)


def test_what_may_come_from_a_process_that_may_live_is_not_told(tmp_path: Path) -> None:
    """It lives as long as no later generation asks, or as its connection is not at its end."""
    node = Node(FolderBucket(str(tmp_path)))
    a_claim(node)
    node.saver.claims.tell_lost(2)
    assert not is_told(node), "its last message may wait in the connection"
    node.share_memory.leave(1)
    for generation in (0, 1):
        node.saver.claims.tell_lost(generation)
        assert not is_told(node), "it may connect again"
    node.saver.claims.tell_lost(2)
    assert is_told(node)
    assert is_lost(node.bucket, MADE, 1, "uid")


def test_share_that_was_handed_over_is_never_told(tmp_path: Path) -> None:
    """Not even when this keeper has given it up for newer ones."""
    node = Node(FolderBucket(str(tmp_path)))
    a_claim(node)
    node.saver.claims.handed_over(MADE, SECOND)
    node.share_memory.leave(1)
    node.saver.claims.tell_lost(2)
    assert not is_told(node)


def test_share_that_is_here_by_another_connection_is_not_told(tmp_path: Path) -> None:
    """The end of the first connection may be seen later than what came by the second one."""
    node = Node(FolderBucket(str(tmp_path)))
    a_claim(node)
    node.take(MADE, SECOND, worker=2)
    node.share_memory.leave(1)
    node.share_memory.leave(2)
    node.saver.claims.tell_lost(2)
    assert not is_told(node)
    node.saver.close(0.0)


def test_storage_that_is_away_is_told_later(tmp_path: Path) -> None:
    is_away = True

    def before(verb: str, name: str) -> None:
        if is_away:
            raise Unavailable("away")

    node = Node(Meddling(FolderBucket(str(tmp_path)), before))
    a_claim(node)
    node.share_memory.leave(1)
    node.saver.claims.tell_lost(2)
    is_away = False
    assert not is_told(node)
    node.saver.claims.tell_lost(2)
    assert is_told(node)


def test_share_that_two_nodes_were_to_hold_is_waited_for_while_one_may_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver_module, "LOOK_OTHERS_S", 0.0)
    near, far, farther = (Node(FolderBucket(str(tmp_path))) for _ in range(3))
    near.committer.open(1, 0)
    near.take(MADE, FIRST)
    near.share_memory.leave(1)
    job = near.saver._jobs[MADE]
    for node, plan in ((far, a_plan(1, 2)), (farther, a_plan(1, 2, 1))):
        assert not near.saver._is_lost(job, 2)
        a_claim(node, plan)
        node.share_memory.leave(1)
        node.saver.claims.tell_lost(2)
    assert near.saver._is_lost(job, 2)
    near.saver.close(0.0)


def test_share_that_another_nodes_keeper_sent_here_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the storage says: it is uploaded from here."""
    monkeypatch.setattr(saver_module, "LOOK_OTHERS_S", 0.0)
    near, far = (Node(FolderBucket(str(tmp_path))) for _ in range(2))
    near.committer.open(1, 0)
    near.take(MADE, FIRST)
    near.share_memory.leave(1)
    a_claim(far)
    far.share_memory.leave(1)
    far.saver.claims.tell_lost(2)
    job = near.saver._jobs[MADE]
    slot = near.share_memory.received.claim(MADE, 1, 2, SECOND.layout.size, 0)
    assert slot is not None
    share = UploadShare(
        snapshot=MADE, share=1, shares=2, holder=1, layout=SECOND.layout, header=None
    )
    record = ShareRecord(share=share, memory=slot.memory, epoch=0)
    near.share_memory.received.add(slot, record)
    assert not near.saver._is_lost(job, 2)
    record.is_wanted = False
    near.share_memory.received.forget_before(a_snapshot(30, generation=2))
    assert near.saver._is_lost(job, 2)
    near.saver.close(0.0)


def test_storage_is_asked_about_some_shares_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every share has its turn; between two looks there is a pause."""
    monkeypatch.setattr(saver_module, "LOOK_SHARES", 2)
    asked = list[str]()
    bucket = Meddling(FolderBucket(str(tmp_path)), lambda verb, name: asked.append(name))
    node = Node(bucket)
    node.committer.open(1, 0)
    node.take(MADE, a_plan(0, 6))
    until((tmp_path / fragment_name(MADE, 0, 0)).exists, lambda: "no fragment")
    node.share_memory.leave(1)
    job = node.saver._jobs[MADE]

    def looked() -> set[str]:
        asked.clear()
        assert not node.saver._is_lost(job, 2)
        return {name for name in asked if name.endswith("lost.json")}

    assert looked() == {loss_name(MADE, share, 0) for share in (1, 2)}
    assert looked() == set()
    monkeypatch.setattr(saver_module, "LOOK_OTHERS_S", 0.0)
    job.look_due_s = 0.0
    rounds = [looked() for _ in range(4)]
    assert set().union(*rounds) == {loss_name(MADE, share, 0) for share in range(1, 6)}
    node.saver.close(0.0)
