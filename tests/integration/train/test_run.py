"""`elasticd.run` with real processes and an agent that does what the tests say.

Every story ends with the same weights, in double precision, as the run that nothing happened to: a
global batch is the same whatever the size of the world.
"""

import json
import math
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from elasticd.channel.pool import Exited, Raised
from elasticd.channel.worker import Beat, Broken, Dump, Entered, Finished, Left, Stacks
from elasticd.train.introspection.stacks import DUMP_SIGNAL
from tests.fixtures.fake_agent import FakeAgent, FakeWorker
from tests.fixtures.pool import PoolDriver, pool, wait_until

__all__ = ["pool"]

SCRIPT = Path(__file__).parents[2] / "fixtures" / "scripts" / "tiny_elastic.py"
EPOCHS = 3
SAMPLES = 96
STEPS = EPOCHS * SAMPLES // 12
GATE = 20
SOMEWHERE = ("--gates", str(GATE))
"""For what may meet ranks anywhere in their training, but must not find it over: here they wait."""
TOLERANCE = 1e-12
"""Of sums in double precision that are made in another order."""


@pytest.fixture(scope="module")
def reference(pool: PoolDriver, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Weights of a world of one, under no agent at all."""
    folder = tmp_path_factory.mktemp("reference")
    end = pool.run(SCRIPT, "--epochs", str(EPOCHS), folder=folder, threads=1)
    out = (folder / f"{end.worker}.out").read_text()
    assert end.code == 0, (folder / f"{end.worker}.err").read_text()
    return weights_in(out)


@pytest.fixture
def agent(pool: PoolDriver, tmp_path: Path) -> Iterator[FakeAgent]:
    with FakeAgent.listening(pool, tmp_path) as agent:
        yield agent


def start(
    agent: FakeAgent,
    count: int,
    *args: str,
    step_s: float = 0.02,
    env: Mapping[str, str] | None = None,
) -> list[FakeWorker]:
    more = ("--epochs", str(EPOCHS), "--step-s", str(step_s))
    return agent.start(SCRIPT, *more, *args, count=count, env=env)


def weights_in(out: str) -> list[float]:
    weights: list[float] = json.loads(out.splitlines()[-1])["weights"]
    return weights


def complaints(worker: FakeWorker) -> list[str]:
    """What it wrote to stderr, but for torch's own word about a resolver that does not answer."""
    return [line for line in worker.err.splitlines() if "hostname of the client socket" not in line]


def assert_ends_as(reference: list[float], workers: Sequence[FakeWorker]) -> None:
    """All end well, with these weights, and every sample counted once."""
    for worker in workers:
        end = worker.wait_for(Finished)
        assert (end.step, end.epochs, end.samples) == (STEPS, EPOCHS, EPOCHS * SAMPLES)
        assert (end.repeated, end.skipped) == (0, 0)
    for worker in workers:
        wait_until(lambda w=worker: '"weights"' in w.out, because=worker.describe())  # type: ignore[misc]
        found = weights_in(worker.out)
        assert all(
            math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
            for a, b in zip(found, reference, strict=True)
        ), worker.describe()


def test_world_trains_as_one_process_does(agent: FakeAgent, reference: list[float]) -> None:
    """Formed, Stepped, Finished; rank 0 says in a line what the run did."""
    workers = start(agent, 3, step_s=0)
    agent.enter(1, workers)
    assert_ends_as(reference, workers)
    for worker in workers:
        assert worker.wait_formed(1).step == 0
        assert worker.wait_formed(1).backend == "gloo"
        assert worker.wait_stepped(1).step == 1
        assert agent.pool.wait_for(Exited, worker.name).code == 0
        assert complaints(worker) == []
    assert [w.out.count("elasticd: ") for w in workers] == [1, 0, 0]


@pytest.mark.parametrize("rank", [0, 1])
def test_killed_rank_is_done_without(agent: FakeAgent, reference: list[float], rank: int) -> None:
    """The others go on in the same processes from the newest step that any of them applied."""
    workers = start(agent, 3, *SOMEWHERE)
    agent.enter(1, workers)
    workers[rank].wait_step(5)
    workers[rank].kill(signal.SIGKILL)
    survivors = [w for w in workers if w is not workers[rank]]
    applied = max(beat.step for w in survivors for beat in w.all_of(Beat))
    agent.enter(2, survivors)
    for worker in survivors:
        assert worker.wait_formed(2).step >= applied
    agent.open_gate(GATE)
    for worker in survivors:
        assert worker.wait_stepped(2).lost_steps <= 1
        # Of the generation that is over it may be told, where the word of the new one comes later.
        assert all(broken.generation == 1 for broken in worker.all_of(Broken))
    assert_ends_as(reference, survivors)


@pytest.mark.parametrize("trick", ["", "cycle"])
def test_old_replica_is_gone_before_the_next(agent: FakeAgent, trick: str) -> None:
    """Its hooks on the parameters would reduce over a dead group; a cycle may keep it."""
    workers = start(agent, 2, "--trick", trick, "--gates", "5,10")
    agent.enter(1, workers)
    for generation, gate in ((2, 5), (3, 10)):
        workers[0].wait_stepped(generation - 1)
        agent.enter(generation, workers)
        for worker in workers:
            worker.wait_formed(generation)
        agent.open_gate(gate)
    for worker in workers:
        worker.wait_for(Finished)
        assert worker.out.count("old replicas: 0") == 3


def test_broken_collective_is_told_and_explained_later(agent: FakeAgent) -> None:
    """The word of a new world comes after the exception, and is waited for."""
    workers = start(agent, 2, *SOMEWHERE)
    agent.enter(1, workers)
    workers[1].wait_step(3)
    workers[1].kill(signal.SIGKILL)
    agent.open_gate(GATE)
    assert workers[0].wait_for(Broken).generation == 1
    agent.enter(2, workers[:1])
    workers[0].wait_for(Finished)


def test_silent_rank_does_not_hold_the_others(agent: FakeAgent, reference: list[float]) -> None:
    """It is stopped, so the others wait in their collective; the new world wakes them."""
    workers = start(agent, 3, *SOMEWHERE)
    agent.enter(1, workers)
    workers[1].wait_step(5)
    workers[1].kill(signal.SIGSTOP)
    agent.open_gate(GATE)
    survivors = [workers[0], workers[2]]
    step = max(beat.step for w in survivors for beat in w.all_of(Beat))
    wait_until(lambda: is_still(survivors), because="they should wait for the stopped one")
    agent.enter(2, survivors)
    for worker in survivors:
        assert worker.wait_formed(2).step >= step
    workers[1].kill(signal.SIGKILL)
    assert_ends_as(reference, survivors)


def is_still(workers: Sequence[FakeWorker]) -> bool:
    """True if the last three beats of each tell the same step."""
    last = [[beat.step for beat in worker.all_of(Beat)[-3:]] for worker in workers]
    return all(len(set(steps)) == 1 and len(steps) == 3 for steps in last)


def test_planned_leave_loses_nothing(agent: FakeAgent, reference: list[float]) -> None:
    """All stop after the same step; the one that left waits with its state, and comes back."""
    workers = start(agent, 3, "--gates", "3,11")
    agent.enter(1, workers)
    workers[0].wait_step(3)
    agent.leave(workers[2], at_step=6)
    agent.enter(2, workers[:2], at_step=6)
    agent.wait_heard(workers)
    agent.open_gate(3)
    assert workers[2].wait_for(Left).step == 6
    assert_planned(workers[:2], 2, step=6)
    workers[0].wait_step(11)
    agent.enter(3, workers, at_step=14)
    agent.wait_heard(workers)
    agent.open_gate(11)
    assert_planned(workers, 3, step=14)
    assert workers[2].wait_formed(3).received_bytes > 0
    assert_ends_as(reference, workers)


def test_ranks_remember_in_which_generation_all_had_one_state(agent: FakeAgent) -> None:
    """Who was away may have applied a step that the others did otherwise: theirs counts."""
    workers = start(agent, 3, "--gates", "5,10")
    agent.enter(1, workers)
    workers[0].wait_step(3)
    agent.leave(workers[2])
    agent.enter(2, workers[:2])
    workers[2].wait_for(Left)
    for worker in workers[:2]:
        worker.wait_formed(2)
    agent.open_gate(5)
    workers[0].wait_stepped(2)
    assert [each["lineage"] for each in agent.reports(2, 2)] == [1, 1]
    agent.enter(3, workers)
    for worker in workers:
        worker.wait_formed(3)
    agent.open_gate(10)
    for worker in workers:
        worker.wait_stepped(3)
    assert [each["lineage"] for each in agent.reports(3, 3)] == [2, 2, 1]


def assert_planned(workers: Sequence[FakeWorker], generation: int, *, step: int) -> None:
    """All stood at this step, so that nothing was copied between those that trained before."""
    for worker in workers:
        formed = worker.wait_formed(generation)
        assert (formed.step, formed.source) == (step, -1 if len(workers) == 2 else 0)
        stepped = worker.wait_stepped(generation)
        assert (stepped.step, stepped.lost_steps) == (step + 1, 0)
    for worker in workers[:2]:
        assert worker.wait_formed(generation).received_bytes == 0


def test_everybody_leaves_and_comes_back(agent: FakeAgent, reference: list[float]) -> None:
    """Between two worlds the state lives in the waiting processes."""
    workers = start(agent, 2, *SOMEWHERE)
    agent.enter(1, workers)
    workers[0].wait_step(3)
    for worker in workers:
        agent.leave(worker)
    steps = [worker.wait_for(Left).step for worker in workers]
    agent.enter(2, workers)
    for worker in workers:
        assert worker.wait_formed(2).step == max(steps)
    agent.open_gate(GATE)
    assert_ends_as(reference, workers)


def test_prepared_worker_joins(agent: FakeAgent, reference: list[float]) -> None:
    """It gets the state of a rank that has it, before its first step."""
    workers = start(agent, 2, "--gates", "3")
    agent.enter(1, workers)
    workers += start(agent, 1)
    workers[0].wait_step(3)
    agent.enter(2, workers, at_step=7)
    agent.wait_heard(workers)
    agent.open_gate(3)
    assert_planned(workers, 2, step=7)
    assert workers[2].wait_formed(2).received_bytes > 0
    assert_ends_as(reference, workers)


def test_failure_while_the_next_world_forms(agent: FakeAgent, reference: list[float]) -> None:
    """A member of it never arrives; a third world takes its place."""
    workers = start(agent, 3, "--gates", "4")
    agent.enter(1, workers)
    workers[0].wait_step(4)
    joiner, *_ = start(agent, 1)
    joiner.kill(signal.SIGSTOP)
    workers[2].kill(signal.SIGKILL)
    agent.enter(2, [*workers[:2], joiner])
    for worker in workers[:2]:
        worker.wait_for(Entered, lambda said: said.generation == 2)
    agent.open_gate(4)
    agent.enter(3, workers[:2])
    joiner.kill(signal.SIGKILL)
    for worker in workers[:2]:
        assert worker.wait_formed(3).step == 4
    assert_ends_as(reference, workers[:2])


def test_worlds_that_follow_each_other_fast(agent: FakeAgent, reference: list[float]) -> None:
    """Each may be overtaken before it has formed; whoever is stuck ends, and is done without."""
    workers = start(agent, 3)
    agent.enter(1, workers)
    workers[0].wait_step(2)
    for generation in range(2, 12):
        agent.enter(generation, workers if generation % 2 else workers[:2])
        time.sleep(0.01 * (generation % 4))
    assert_ends_as(reference, see_to_the_end(agent, workers, 12))


def see_to_the_end(
    agent: FakeAgent, workers: Sequence[FakeWorker], generation: int
) -> list[FakeWorker]:
    """Name worlds of those that live until one of them has finished; returns them."""
    while True:
        living = [worker for worker in workers if not worker.is_gone]
        agent.enter(generation, living)

        def is_over(worlds: int = generation, members: Sequence[FakeWorker] = living) -> bool:
            broken = [said.generation for worker in members for said in worker.all_of(Broken)]
            are_done = all(worker.all_of(Finished) for worker in members)
            return are_done or worlds in broken or any(worker.is_gone for worker in members)

        living[0].wait_until(is_over, "end of a world")
        if all(worker.all_of(Finished) for worker in living):
            return living
        generation += 1


def test_exception_of_the_script_leaves_with_its_traceback(
    agent: FakeAgent, reference: list[float]
) -> None:
    """At once and with the line of the script; the others go on without that rank."""
    workers = start(agent, 3, "--trick", "raise", "--at-step", "6", "--on-rank", "1")
    agent.enter(1, workers)
    raised = agent.pool.wait_for(Raised, workers[1].name)
    assert raised.exception == "ValueError: no luck today"
    assert Path(raised.where.rpartition(":")[0]).name in (SCRIPT.name, "run.py")
    assert 'raise ValueError("no luck today")' in raised.traceback
    # As an agent does: an interpreter with all of torch in it may take seconds to end, and the
    # survivors wait for word of the broken collective for no more than five.
    survivors = [workers[0], workers[2]]
    agent.enter(2, survivors)
    assert agent.pool.wait_for(Exited, workers[1].name).code == 1
    assert_ends_as(reference, survivors)


@pytest.mark.parametrize("trick", ["swallow-all", "sleep", "compute"])
def test_rank_that_comes_to_no_leave_point_is_fetched(
    agent: FakeAgent, reference: list[float], trick: str
) -> None:
    """It waits, computes, or has swallowed what was to get it out."""
    workers = start(agent, 3, "--trick", trick, "--at-step", "6", "--on-rank", "0")
    agent.enter(1, workers)
    wait_until(lambda: "trick" in workers[0].out, because=workers[0].describe())
    workers[2].kill(signal.SIGKILL)
    agent.enter(2, workers[:2])
    for worker in workers[:2]:
        worker.wait_formed(2)
    assert_ends_as(reference, workers[:2])
    assert ("swallowed" in workers[0].out) is trick.startswith("swallow")


def test_rank_that_nothing_can_fetch_ends_itself(agent: FakeAgent, reference: list[float]) -> None:
    """So that it is replaced soon; where it was stuck stands in its log."""
    workers = start(agent, 2, "--trick", "stuck", "--at-step", "6", "--on-rank", "0")
    agent.enter(1, workers)
    wait_until(lambda: "trick" in workers[0].out, because=workers[0].describe())
    agent.enter(2, workers)
    assert agent.pool.wait_for(Exited, workers[0].name).code == -signal.SIGKILL
    assert "stuck" in workers[0].wait_for(Broken).why
    assert "play_trick" in workers[0].err
    agent.enter(3, workers[1:])
    assert_ends_as(reference, workers[1:])


def test_commit_under_way_is_finished_first(agent: FakeAgent, reference: list[float]) -> None:
    """A change that comes between the optimizer's step and the commit does not cost the step."""
    workers = start(agent, 2, "--trick", "slow-commit", "--at-step", "6")
    agent.enter(1, workers)
    for worker in workers:
        wait_until(lambda w=worker: "before commit" in w.out, because=worker.describe())  # type: ignore[misc]
    agent.enter(2, workers)
    agent.wait_heard(workers)
    (agent.folder / "commit").touch()
    for worker in workers:
        assert worker.wait_formed(2).step == 7
        assert worker.wait_stepped(2).lost_steps == 0
    assert_ends_as(reference, workers)


def test_finished_rank_waits_for_the_others(agent: FakeAgent, reference: list[float]) -> None:
    """One is lost after the last step: the other is called again, and has nothing to do."""
    workers = start(agent, 2, "--trick", "sleep-at-end", "--on-rank", "1")
    agent.enter(1, workers)
    wait_until(lambda: "trick" in workers[1].out, because=workers[1].describe())
    workers[0].wait_for(Beat, lambda beat: beat.has_returned and beat.step == STEPS)
    assert not workers[0].all_of(Finished)
    workers[1].kill(signal.SIGKILL)
    agent.enter(2, workers[:1])
    assert workers[0].wait_formed(2).step == STEPS
    assert_ends_as(reference, workers[:1])


def test_replica_that_differs_is_named(agent: FakeAgent) -> None:
    """Its rank ends with the error; the others can go on."""
    args = ("--epochs", str(EPOCHS), "--trick", "differ", "--at-step", "3", "--on-rank", "1")
    workers = agent.start(SCRIPT, *args, count=3, env={"ELASTICD_COMPARE_EVERY": "5"})
    agent.enter(1, workers)
    raised = agent.pool.wait_for(Raised, workers[1].name)
    assert raised.exception.startswith("ReplicaDiffers: ")
    assert "rank 1" in raised.exception and "step 4" in raised.exception


def test_ranks_that_reduce_no_gradients_end_the_job(agent: FakeAgent) -> None:
    """No class and no tensor tells it, and a failure would throw a rank's training away."""
    workers = start(agent, 2, "--trick", "alone", "--step-s", "0.01")
    agent.enter(1, workers)
    raised = agent.pool.wait_for(Raised, workers[0].name)
    assert raised.exception.startswith("ScriptDiverges: ") and raised.ends_job
    # Named are those that are farthest apart, which is another one at each step.
    assert re.search(r"different parameters: model\.\d\.(weight|bias)", raised.exception)
    assert "gradients of all ranks" in raised.exception


def test_stacks_of_a_rank_can_be_asked_for(agent: FakeAgent) -> None:
    """By message while Python's threads run, by signal even when they do not."""
    workers = start(agent, 1, "--trick", "sleep", "--at-step", "2")
    agent.enter(1, workers)
    wait_until(lambda: "trick" in workers[0].out, because=workers[0].describe())
    workers[0].tell(Dump())
    assert "play_trick" in workers[0].wait_for(Stacks).text
    workers[0].kill(DUMP_SIGNAL)
    wait_until(lambda: "play_trick" in workers[0].err, because=workers[0].describe())
    agent.enter(2, workers)
    workers[0].wait_formed(2)


def test_worker_ends_with_its_agent(pool: PoolDriver, tmp_path: Path) -> None:
    """Quietly: the pool would end it anyway.

    torch itself writes a page where it is interrupted in a word to the store, as in a comparison of
    replicas; there is none here.
    """
    with FakeAgent.listening(pool, tmp_path) as agent:
        workers = start(agent, 2, *SOMEWHERE, env={"ELASTICD_COMPARE_EVERY": "0"})
        agent.enter(1, workers)
        workers[0].wait_step(2)
        for worker in workers:
            assert worker.connection is not None
            worker.connection.shutdown(2)
        for worker in workers:
            assert pool.wait_for(Exited, worker.name).code == 1
            assert complaints(worker) == []
