"""What is asked before a standstill is told, and what is told at once."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import pytest

from elasticd.channel import worker as ch
from elasticd.records.ids import Generation, NodeId, Nonce, Slot
from elasticd.records.member import Peer, StallLimit
from elasticd.records.world import WorldWorker
from elasticd.rendezvous import event as ev
from elasticd_agent.liveness.hang_detector import Frozen, Verdict
from elasticd_agent.liveness.progress_timeout import Resumed, Stalled
from elasticd_agent.worker_setup.worker_env import WorkerFiles
from elasticd_agent.workers.attached_workers import AttachedWorkers
from elasticd_agent.workers.stall_probe import HOLD_S, StallProbe
from tests.fixtures.patience import patience_s
from tests.unit.rendezvous.cases import name, world

ONE = Generation(1)
AWAY, OTHER = name(1), name(2)
LIMIT_S = patience_s(20.0)


class Node:
    """Node 0 of a world with two more: workers 10 and 11; the network answers what a test says."""

    def __init__(self, *nodes: int) -> None:
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.judged: list[Verdict] = []
        self.fed: list[ev.Event] = []
        self.asked: list[tuple[NodeId, ...]] = []
        self.silent: tuple[NodeId, ...] = ()
        self.error: Exception | None = None
        self.at_s = 100.0
        self.attached = AttachedWorkers(lambda pid, message: None, self.fed.append)
        for slot, pid in enumerate((10, 11)):
            self.attached.expect(pid, Slot(slot), Nonce(1))
        self.enter(1, *(nodes or (0, 1, 2)))
        self.probe = StallProbe(
            self.posted.put,
            self.attached,
            self.judged.append,
            probe=self._reach,
            pause_s=0.0,
            now_s=lambda: self.at_s,
        )
        self.fed.clear()

    def _reach(self, peers: tuple[Peer, ...]) -> tuple[NodeId, ...]:
        self.asked.append(tuple(peer.node for peer in peers))
        if self.error is not None:
            raise self.error
        return self.silent

    def enter(self, generation: int, *nodes: int, forms: bool = True) -> None:
        standing = world(generation, *nodes)
        two = tuple(WorldWorker(slot=Slot(slot), nonce=Nonce(1)) for slot in range(2))
        here = dataclasses.replace(standing.nodes[0], workers=two)
        standing = dataclasses.replace(standing, nodes=(here, *standing.nodes[1:]))
        files = WorkerFiles(out=Path("o"), err=Path("e"), error=Path("x"))
        for pid, placement in zip((10, 11), standing.placements_of(here), strict=True):
            self.attached.enter(pid, standing, placement, files)
            if forms:
                self.attached.receive(pid, ch.Formed(generation=Generation(generation), step=0))

    def answer(self, silent: tuple[NodeId, ...] = ()) -> None:
        """Let the probe that was begun come to its end, with this for the next one."""
        end = self.posted.get(timeout=LIMIT_S)
        self.silent = silent
        end()

    def answers(self, count: int) -> None:
        for _ in range(count):
            self.answer(self.silent)

    @property
    def broken(self) -> list[ev.WorkerBroken]:
        return [event for event in self.fed if isinstance(event, ev.WorkerBroken)]


def stalled(
    pid: int = 10,
    *,
    limit: StallLimit = StallLimit.RECORD,
    is_waited_for: bool = False,
    has_returned: bool = False,
) -> Stalled:
    return Stalled(
        pid=pid,
        generation=ONE,
        step=7,
        sequence=70,
        since_s=5.2,
        limit=limit,
        is_waited_for=is_waited_for,
        has_returned=has_returned,
    )


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_standstill_is_told_as_it_is_once_all_nodes_answer(is_waited_for: bool) -> None:
    node, verdict = Node(), stalled(is_waited_for=is_waited_for)
    node.probe.receive(verdict)
    assert not node.judged
    node.answer()
    assert node.judged == [verdict] and node.asked == [(AWAY, OTHER)] and not node.fed


def test_what_no_network_explains_is_told_at_once() -> None:
    """A process that is frozen, one that returned, one that goes on, and a world of one node."""
    node, alone = Node(), Node(0)
    frozen = Frozen(pid=10, why="It is stopped.")
    told: list[Verdict] = [frozen, stalled(has_returned=True), Resumed(pid=10)]
    for verdict in told:
        node.probe.receive(verdict)
    alone.probe.receive(stalled())
    assert node.judged == told and alone.judged == [stalled()]
    assert not node.asked and not alone.asked


def test_verdict_is_held_while_nodes_are_apart_and_told_when_they_answer() -> None:
    """They are asked again and again; the hang of a rank that really hangs is told in the end."""
    node, verdict = Node(), stalled(is_waited_for=True)
    node.silent = (AWAY,)
    node.probe.receive(verdict)
    node.answers(5)
    assert not node.judged and not node.fed
    node.answer(())
    node.answer()
    assert node.judged == [verdict] and not node.broken


def test_one_probe_that_fails_by_chance_silences_no_hang() -> None:
    """That of the worker that others here wait for, which is told once, and is no news later."""
    node, verdict = Node(), stalled(limit=StallLimit.PROGRESS, is_waited_for=True)
    node.silent = (AWAY, OTHER)
    node.probe.receive(verdict)
    node.answer(())
    assert not node.judged and not node.fed, "one failure proves nothing"
    node.answer()
    assert node.judged == [verdict] and not node.broken


def test_probes_that_fail_for_different_nodes_prove_nothing() -> None:
    """Each packet lost is another node's: after a while the verdict is told all the same."""
    node, verdict = Node(), stalled(limit=StallLimit.PROGRESS)
    for turn in range(6):
        node.silent = ((AWAY,), (OTHER,))[turn % 2]
        if turn == 0:
            node.probe.receive(verdict)
        node.answer(((OTHER,), (AWAY,))[turn % 2])
        assert not node.judged and not node.fed
    node.at_s += HOLD_S
    node.answer()
    assert node.judged == [verdict] and not node.broken


def test_probe_that_raises_holds_no_verdict() -> None:
    node, verdict = Node(), stalled()
    node.error = RuntimeError("can't start new thread")
    node.probe.receive(verdict)
    node.answer()
    assert node.judged == [verdict]


def test_probe_that_cannot_begin_holds_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoThread:
        def __init__(self, **given: object) -> None: ...

        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread", NoThread)
    node, verdict = Node(), stalled()
    node.probe.receive(verdict)
    assert node.judged == [verdict] and not node.asked


def test_nodes_that_stay_apart_are_told_once_the_progress_timeout_is_over() -> None:
    """As the rank itself would say it if its connections fell silent: then a node is left out."""
    node = Node()
    node.silent = (AWAY,)
    node.probe.receive(stalled(limit=StallLimit.PROGRESS))
    node.answers(1)
    assert not node.fed, "one failure proves nothing"
    node.answers(1)
    assert not node.judged
    assert node.fed == [
        ev.WorkerBroken(slot=Slot(0), nonce=Nonce(1), generation=ONE, unreachable=(AWAY,))
    ]


def test_nodes_that_stay_apart_are_told_where_no_connection_ever_falls_silent() -> None:
    """NCCL waits for ever, and who is waited for by others here passes no longer limit."""
    node = Node()
    node.silent = (AWAY,)
    node.probe.receive(stalled(is_waited_for=True))
    node.answers(3)
    assert not node.fed
    node.at_s += HOLD_S
    node.answers(1)
    assert [event.unreachable for event in node.broken] == [(AWAY,)] and not node.judged


def test_worker_that_was_told_of_the_next_world_is_told_as_hung() -> None:
    """That the group which it is still in is broken would be no event to the core any more."""
    node = Node()
    node.enter(2, 0, 1, 2, forms=False)
    node.silent = (AWAY,)
    node.probe.receive(stalled(limit=StallLimit.PROGRESS))
    node.answers(1)
    assert [verdict.pid for verdict in node.judged] == [10] and not node.broken


def test_longer_limit_that_is_passed_meanwhile_is_the_one_that_is_told() -> None:
    node, later = Node(), stalled(limit=StallLimit.PROGRESS)
    node.silent = (AWAY,)
    node.probe.receive(stalled())
    node.probe.receive(later)
    node.answer(())
    node.answer()
    assert node.judged == [later]


def test_one_probe_asks_for_all_workers_at_a_time() -> None:
    node = Node()
    node.probe.receive(stalled(10))
    node.probe.receive(stalled(11))
    node.answer()
    assert node.judged == [stalled(10)], "the other one was not among those asked for"
    node.answer()
    assert node.judged == [stalled(10), stalled(11)] and len(node.asked) == 2
    assert node.posted.empty()


@pytest.mark.parametrize(
    "message",
    [
        ch.Entered(generation=Generation(2)),
        ch.Formed(generation=Generation(2), step=7),
        ch.Left(step=7),
        ch.Broken(generation=ONE, why="silence"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_verdict_about_a_group_that_is_over_is_dropped(message: ch.FromWorker) -> None:
    """The worker would be killed in the next one, where it is well."""
    node = Node()
    node.silent = (AWAY,)
    node.probe.receive(stalled(10, is_waited_for=True))
    node.probe.receive(stalled(11))
    node.attached.receive(10, message)
    node.answer(())
    node.answer()
    assert node.judged == [stalled(11)]


def test_worker_that_goes_on_while_nodes_are_asked_was_never_told_of() -> None:
    node = Node()
    node.probe.receive(stalled())
    node.probe.receive(Resumed(pid=10))
    node.answer()
    assert node.judged == [Resumed(pid=10)]


def test_only_nodes_of_its_own_world_count() -> None:
    """The next one, that begins at a later step, has a node more."""
    node = Node(0, 1)
    node.enter(2, 0, 1, 2, forms=False)
    node.probe.receive(stalled())
    node.answer()
    assert node.asked == [(AWAY,)] and node.judged == [stalled()]
