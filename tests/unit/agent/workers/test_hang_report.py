"""What an agent does about workers that hang, and what it tells the core."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Nonce, Rank, Slot
from elasticd.records.member import StallLimit
from elasticd.rendezvous import event as ev
from elasticd_agent.liveness.hang_detector import Frozen
from elasticd_agent.liveness.monitor import WorkerMonitor
from elasticd_agent.liveness.progress_timeout import Resumed, Stalled
from elasticd_agent.liveness.stack_dump import SuspectWorker
from elasticd_agent.output_monitor.silence import Heard, Silent
from elasticd_agent.worker_setup.worker_env import worker_files
from elasticd_agent.workers.exit_report import ExitReport
from elasticd_agent.workers.hang_report import HangReporter, is_final
from elasticd_agent.workers.worker_process import Home, WorkerProcess, failure_of

NODE = NodeId("node-1")
HOME = Home(node=NODE, incarnation=Incarnation("i"), host="vm")
ONE = Generation(1)


class FakeMonitor:
    """Writes no stacks; says that it has when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[Path, list[SuspectWorker]]] = []
        self.done: list[Callable[[], None]] = []

    def write_stacks(
        self, path: Path, workers: Sequence[SuspectWorker], done: Callable[[], None]
    ) -> None:
        self.asked.append((path, list(workers)))
        self.done.append(done)


class Node:
    """Two ranks of generation 1, in processes 10 and 11."""

    def __init__(self, folder: Path) -> None:
        self.monitor = FakeMonitor()
        self.killed: list[str] = []
        self.fed: list[ev.Event] = []
        self.has_steps = True
        self.processes = {f"1.{slot}.1": self._process(folder, slot) for slot in range(2)}
        self.reporter = HangReporter(
            cast(WorkerMonitor, self.monitor),
            lambda call: call(),
            (folder, JobName("j"), NODE),
            self.processes,
            failure=lambda name: failure_of(HOME, self.processes[name], -9, ExitReport(), None),
            kill=self.killed.append,
            feed=self.fed.append,
            has_steps=lambda pid: self.has_steps,
        )

    def _process(self, folder: Path, slot: int) -> WorkerProcess:
        return WorkerProcess(
            slot=Slot(slot),
            nonce=Nonce(1),
            files=worker_files(folder, JobName("j"), ONE, Rank(slot)),
            generation=ONE,
            rank=Rank(slot),
            pid=10 + slot,
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def stalled(
    limit: StallLimit, *, is_waited_for: bool = False, generation: Generation = ONE
) -> Stalled:
    return Stalled(
        pid=10,
        generation=generation,
        step=7,
        sequence=70,
        since_s=5.2,
        limit=limit,
        is_in_step=True,
        is_waited_for=is_waited_for,
    )


def culprit(node: NodeId) -> Failure:
    return Failure(
        node=node,
        incarnation=HOME.incarnation,
        host="vm",
        generation=ONE,
        rank=Rank(0),
        local_rank=0,
        slot=Slot(0),
        nonce=Nonce(1),
        is_hung=True,
        exception="No progress.",
    )


def test_worker_that_stands_still_is_for_all_nodes_to_judge(node: Node) -> None:
    """Nobody is looked at yet: it may wait for a worker of another node."""
    event = node.reporter.judged("1.0.1", stalled(StallLimit.RECORD))
    assert isinstance(event, ev.WorkerStalled)
    assert (event.slot, event.stall.limit, event.stall.sequence) == (0, StallLimit.RECORD, 70)
    assert event.stall.why == "No progress for 5 s, while others waited for it."
    assert event.stall.stacks_path.endswith("j/incidents/gen-1.node-1.stacks.txt")
    assert node.monitor.asked == [] and not node.processes["1.0.1"].is_examined
    resumed = node.reporter.judged("1.0.1", Resumed(pid=10))
    assert resumed == ev.WorkerResumed(slot=Slot(0), nonce=Nonce(1))


def test_worker_that_was_stopped_before_run_is_ended_with_its_cause(node: Node) -> None:
    """It is in no world whose ranks could be asked for their stacks."""
    node.has_steps = False
    verdict = Frozen(pid=10, why="It is stopped by a signal.", has_run=False)
    event = node.reporter.judged("1.0.1", verdict)
    assert isinstance(event, ev.WorkerFailed)
    assert (event.slot, event.nonce) == (Slot(0), Nonce(1))
    assert (event.failure.signal, event.failure.is_hung) == ("SIGKILL", False)
    assert event.failure.exception == "It is stopped by a signal."
    assert node.killed == ["1.0.1"] and node.monitor.asked == []


def test_worker_that_called_run_at_the_last_moment_lives(node: Node) -> None:
    verdict = Frozen(pid=10, why="It is stopped by a signal.", has_run=False)
    event = node.reporter.judged("1.0.1", verdict)
    assert event == ev.WorkerResumed(slot=Slot(0), nonce=Nonce(1))
    assert node.killed == []


def test_it_stood_still_in_the_generation_that_it_is_in(node: Node) -> None:
    """And not in the one that it was told to enter at a later step."""
    node.processes["1.0.1"].generation = Generation(2)
    event = node.reporter.judged("1.0.1", stalled(StallLimit.PROGRESS))
    assert isinstance(event, ev.WorkerStalled) and event.stall.generation == ONE


def test_worker_that_others_here_wait_for_is_done_without_at_once(node: Node) -> None:
    """It is killed once its stacks are taken, those of its neighbours with them."""
    event = node.reporter.judged("1.0.1", stalled(StallLimit.RECORD, is_waited_for=True))
    assert isinstance(event, ev.WorkerFailed) and event.failure.is_hung
    process = node.processes["1.0.1"]
    assert process.is_examined
    process.is_stop_due = True
    ((path, standing),) = node.monitor.asked
    assert [(one.pid, bool(one.note)) for one in standing] == [(10, True), (11, False)]
    assert event.failure.log_path == str(path) and node.killed == []
    node.monitor.done[0]()
    assert node.killed == ["1.0.1"] and not process.is_examined


def test_hang_that_all_nodes_agreed_on_is_looked_at_where_it_is(node: Node) -> None:
    """Once: an agent that found it by itself has written it down already."""
    node.reporter.explain(ONE, culprit(NODE))
    ((_, standing),) = node.monitor.asked
    assert [one.note for one in standing] == ["No progress.", ""]
    assert node.processes["1.0.1"].is_examined
    node.reporter.explain(ONE, culprit(NODE))
    assert len(node.monitor.asked) == 1


def test_nodes_that_waited_write_down_where(node: Node) -> None:
    """Nobody of theirs is to blame, or ends for it."""
    node.reporter.explain(ONE, culprit(NodeId("other")))
    ((_, standing),) = node.monitor.asked
    assert [(one.pid, one.note) for one in standing] == [(10, ""), (11, "")]
    assert not any(process.is_examined for process in node.processes.values())
    node.monitor.done[0]()
    assert node.killed == []
    node.reporter.explain(Generation(2), None)
    assert len(node.monitor.asked) == 1, "no rank of that generation is here"


def test_only_what_says_it_of_the_worker_alone_is_final() -> None:
    """A worker that waits in no world is ended for nothing less."""
    assert is_final(Frozen(pid=10, why="")) and is_final(stalled(StallLimit.PROGRESS))
    assert not is_final(stalled(StallLimit.RECORD)) and not is_final(Resumed(pid=10))


def test_silence_is_told_in_restart_mode_alone(node: Node) -> None:
    """Where steps are known, what is printed says nothing."""
    tell = node.reporter._judge_output
    tell(Silent(pid=10, since_s=300.0))
    assert node.fed == []
    node.has_steps = False
    tell(Silent(pid=10, since_s=300.4))
    tell(Heard(pid=10))
    tell(Silent(pid=99, since_s=300.0))
    stalled, resumed = node.fed
    assert isinstance(stalled, ev.WorkerStalled) and isinstance(resumed, ev.WorkerResumed)
    assert (stalled.stall.generation, stalled.stall.why) == (ONE, "No output for 300 s.")


def test_silent_ranks_are_looked_at_before_they_are_ended(node: Node) -> None:
    """They never called `elasticd.run`, so nobody in them answers; then each gets its grace."""
    node.has_steps = False
    node.reporter.explain(ONE, None)
    ((_, standing),) = node.monitor.asked
    assert all(one.is_frozen for one in standing)
    processes = node.processes.values()
    assert all(process.is_examined and process.is_silent for process in processes)
    node.processes["1.1.1"].is_stop_due = True
    node.monitor.done[0]()
    assert node.killed == ["1.1.1"]
    assert not any(process.is_examined for process in processes)
