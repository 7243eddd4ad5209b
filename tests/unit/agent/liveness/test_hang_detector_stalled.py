"""Who makes no progress, and above all who does or need not."""

import math
import random

import pytest

from elasticd.channel.worker import (
    Beat,
    Broken,
    Entered,
    Formed,
    FromWorker,
    Left,
    Stepped,
)
from elasticd.records.ids import Generation, JobName
from elasticd_agent.liveness.hang_detector import Frozen
from elasticd_agent.liveness.progress_timeout import Stalled
from tests.fixtures.pulse_scene import LIMIT_S, NEVER_S, Scene, beat, sample


@pytest.fixture
def scene() -> Scene:
    """One worker, 1, in the loop, that beats."""
    scene = Scene()
    scene.worker(1)
    return scene.go(1.0)


def test_worker_without_progress_is_stalled_at_the_limit(scene: Scene) -> None:
    """Told once, with where it stands."""
    scene.go(LIMIT_S - 2.0)
    assert scene.verdicts == []
    scene.go(3.0)
    (verdict,) = scene.verdicts
    assert isinstance(verdict, Stalled)
    assert (verdict.pid, verdict.step, verdict.sequence) == (1, 5, 50)
    assert LIMIT_S <= verdict.since_s < LIMIT_S + 1.0
    scene.go(100.0)
    assert len(scene.verdicts) == 1


@pytest.mark.parametrize("number", ["step", "batches", "sequence"])
def test_any_number_that_moves_is_progress(scene: Scene, number: str) -> None:
    """An evaluation delivers batches, a long accumulation begins collectives."""
    for value in range(100, 110):
        scene.saying[1] = beat(**{number: value})
        scene.go(40.0)
    assert scene.verdicts == []


@pytest.mark.parametrize(
    "message",
    [Entered(generation=Generation(2)), Left(step=5), Broken(generation=Generation(1), why="")],
)
def test_worker_out_of_the_loop_is_not_stalled(scene: Scene, message: FromWorker) -> None:
    """It waits for a world; there is no progress to make."""
    scene.say(1, message)
    scene.go(NEVER_S)
    assert scene.verdicts == []


def test_worker_in_no_generation_is_not_stalled(scene: Scene) -> None:
    """Generation 0: not in train."""
    scene.saying[1] = beat(generation=0)
    scene.go(NEVER_S)
    assert scene.verdicts == []


def test_limit_counts_from_the_forming_of_the_group(scene: Scene) -> None:
    """What went before was another generation's."""
    scene.go(50.0)
    scene.say(1, Entered(generation=Generation(2)))
    scene.go(100.0)
    scene.say(1, Formed(generation=Generation(2), step=5))
    scene.saying[1] = beat(generation=2)
    scene.go(LIMIT_S - 2.0)
    assert scene.verdicts == []
    scene.go(3.0)
    assert [type(v) for v in scene.verdicts] == [Stalled]


def test_pause_does_not_count(scene: Scene) -> None:
    """`state.pause` suspends the limit, which begins anew after it."""
    scene.go(50.0)
    scene.saying[1] = beat(is_paused=True)
    scene.go(NEVER_S)
    scene.saying[1] = beat()
    scene.go(LIMIT_S - 2.0)
    assert scene.verdicts == []
    scene.go(3.0)
    assert [type(v) for v in scene.verdicts] == [Stalled]


def test_one_that_pauses_excuses_who_waits_for_it(scene: Scene) -> None:
    """Rank 0 evaluates, the others stand in their next collective."""
    scene.worker(2)
    scene.saying = {1: beat(is_paused=True), 2: beat(sequence=51)}
    scene.go(NEVER_S)
    assert scene.verdicts == []


def test_own_stop_does_not_count_for_progress(scene: Scene) -> None:
    """Ten minutes that nobody watched are nobody's fault."""
    scene.go(30.0)
    scene.now_s += 600.0
    scene.turn()
    scene.go(20.0)
    assert scene.verdicts == []


def test_starved_worker_is_stalled_at_last(scene: Scene) -> None:
    """Not frozen, but of no use either."""
    scene.saying[1] = None
    scene.samples[1] = sample("R")
    scene.go(LIMIT_S + 1.0)
    assert [type(v) for v in scene.verdicts] == [Stalled]


@pytest.fixture
def pair(scene: Scene) -> Scene:
    """Rank 2 waits in a collective, rank 1 did not come there."""
    scene.worker(2)
    for step in range(5, 10):
        scene.saying = {1: beat(step=step, sequence=50), 2: beat(step=step, sequence=50)}
        scene.go(1.0)
    scene.saying = {1: beat(step=10, sequence=100), 2: beat(step=10, sequence=101)}
    return scene


def test_laggard_in_the_loop_is_stalled_soon(pair: Scene) -> None:
    """It alone, and not the one that waits for it."""
    pair.go(4.8)
    assert pair.verdicts == []
    pair.go(1.0)
    (verdict,) = pair.verdicts
    assert isinstance(verdict, Stalled)
    assert verdict.pid == 1
    pair.go(NEVER_S)
    assert len(pair.verdicts) == 1


def test_limit_is_short_only_while_somebody_waits(pair: Scene) -> None:
    """The one ahead goes on: it is not in a collective with the other."""
    for batches in range(100, 150):
        pair.saying[2] = beat(step=10, sequence=101, batches=batches)
        pair.go(1.0)
    assert pair.verdicts == []


def test_limit_grows_with_the_step(pair: Scene) -> None:
    """20 steps of 1 s and 2 s."""
    pair.saying[1] = beat(step=10, sequence=100, step_s=1.0)
    pair.go(21.0)
    assert pair.verdicts == []
    pair.go(2.0)
    assert [v.pid for v in pair.verdicts] == [1]


@pytest.mark.parametrize("step_s", [0.0, -1.0, math.nan, math.inf, 1e300])
def test_step_without_a_known_duration_shortens_nothing(pair: Scene, step_s: float) -> None:
    """Whatever the worker sends for it."""
    pair.saying = {
        1: beat(step=10, sequence=100, step_s=step_s),
        2: beat(step=10, sequence=101, step_s=step_s),
    }
    pair.go(LIMIT_S - 1.0)
    assert pair.verdicts == []
    pair.go(2.0)
    assert [v.pid for v in pair.verdicts] == [1]


def test_limit_below_the_short_one_holds(scene: Scene) -> None:
    """The job's own word."""
    scene.worker(3, limit_s=2.0)
    scene.go(3.0)
    assert [v.pid for v in scene.verdicts] == [3]


def test_evaluation_between_batches_keeps_the_long_limit(pair: Scene) -> None:
    """Rank 1 evaluates without a pause for most of a minute while rank 2 waits for it."""
    pair.saying[1] = beat(step=10, sequence=100, is_in_step=False)
    pair.go(55.0)
    pair.saying[1] = beat(step=10, sequence=101, batches=7)
    pair.go(1.0)
    assert pair.verdicts == []


def test_evaluation_on_all_ranks_keeps_the_long_limit(pair: Scene) -> None:
    """Nobody waits for anybody."""
    pair.saying = {1: beat(step=10, sequence=100), 2: beat(step=10, sequence=100)}
    pair.go(55.0)
    assert pair.verdicts == []


def test_beat_without_the_word_keeps_the_long_limit(pair: Scene) -> None:
    """A worker of an older elasticd: whether it is within a step cannot be known."""
    plain = Beat(generation=Generation(1), step=10, step_s=0.1, batches=6, sequence=100)
    pair.saying[1] = plain
    pair.go(55.0)
    assert pair.verdicts == []


def test_who_is_a_step_behind_is_within_one(pair: Scene) -> None:
    """The other could not have committed it without."""
    pair.saying = {
        1: Beat(generation=Generation(1), step=10, step_s=0.1, batches=6, sequence=105),
        2: Beat(generation=Generation(1), step=11, step_s=0.1, batches=7, sequence=105),
    }
    pair.go(6.0)
    assert [v.pid for v in pair.verdicts] == [1]


def test_first_step_keeps_the_long_limit() -> None:
    """It compiles, loads kernels, makes contexts: on one rank longer than on another."""
    scene = Scene()
    for pid in (1, 2):
        scene.worker(pid, stepped=False)
    scene.saying = {1: beat(step=0, sequence=0), 2: beat(step=0, sequence=1)}
    scene.go(55.0)
    assert scene.verdicts == []


def test_who_compiled_before_may_compile_again(scene: Scene) -> None:
    """The first step took 20 s: a new shape on this rank may take as long once more."""
    for pid in (1, 2):
        scene.worker(pid, stepped=False)
        scene.saying[pid] = beat(step=0, sequence=0)
    scene.go(20.0)
    for step in range(1, 50):
        scene.saying = {1: beat(step=step), 2: beat(step=step)}
        scene.go(0.4)
    scene.saying = {1: beat(step=50, sequence=100), 2: beat(step=50, sequence=101)}
    scene.go(38.0)
    assert scene.verdicts == []
    scene.go(5.0)
    assert [v.pid for v in scene.verdicts] == [1]


def test_laggard_of_another_job_or_generation_is_nobodys_suspect(scene: Scene) -> None:
    """Only numbers of one group can be compared."""
    scene.detector.watch(2, job=JobName("other"), limit_s=LIMIT_S)
    scene.say(2, Formed(generation=Generation(1), step=0))
    scene.say(2, Stepped(generation=Generation(1), step=1))
    scene.worker(3)
    scene.say(3, Formed(generation=Generation(2), step=5))
    scene.saying = {
        1: beat(step=10, sequence=100),
        2: beat(step=10, sequence=101),
        3: beat(step=10, sequence=101, generation=2),
    }
    scene.go(30.0)
    assert scene.verdicts == []


def test_progress_of_the_laggard_begins_anew(pair: Scene) -> None:
    """Slow is not stalled."""
    for sequence in range(60, 90):
        pair.saying = {1: beat(step=10, sequence=sequence), 2: beat(step=10, sequence=100)}
        pair.go(4.0)
    assert pair.verdicts == []


def test_frozen_one_excuses_who_waits_for_it(pair: Scene) -> None:
    """One verdict for one fault."""
    pair.saying[1] = None
    pair.samples[1] = sample("TT")
    pair.go(200.0)
    assert [(type(v), v.pid) for v in pair.verdicts] == [(Frozen, 1)]


def test_strangers_are_ignored(scene: Scene) -> None:
    """What is said of a process that is not watched, or not any more."""
    scene.say(77, beat())
    scene.detector.forget(78)
    scene.detector.forget(1)
    scene.saying[1] = None
    scene.go(100.0)
    assert scene.verdicts == []
    assert not scene.detector.is_needed


@pytest.mark.parametrize("seed", range(30))
def test_healthy_worlds_are_left_alone(seed: int) -> None:
    """Beats that come late by chance, uneven steps, loads and jumps of our own clock."""
    chance = random.Random(seed)
    scene = Scene()
    pids = range(1, 5)
    for pid in pids:
        scene.worker(pid)
    step = 5
    for _ in range(400):
        if chance.random() < 0.3:
            step += 1
        for pid in pids:
            late = chance.random() < 0.5
            ahead = chance.randrange(3)
            scene.saying[pid] = None if late else beat(step=step, sequence=step * 10 + ahead)
            runs = chance.random() < 0.2
            scene.samples[pid] = sample("SR" if runs else "SS", cpu_s=scene.now_s * 0.2)
        if chance.random() < 0.02:
            scene.now_s += chance.random() * 5
        scene.go(0.1)
    assert scene.verdicts == [], f"seed {seed}"


def test_rank_that_returned_early_is_named_by_those_who_wait_for_it() -> None:
    """They began a collective that it never will."""
    scene = Scene()
    scene.worker(1)
    scene.worker(2)
    scene.go(1.0)
    scene.saying = {1: beat(sequence=51), 2: beat(sequence=50, has_returned=True)}
    scene.go(4.0)
    assert scene.verdicts == []
    scene.go(2.0)
    (verdict,) = scene.verdicts
    assert isinstance(verdict, Stalled)
    assert (verdict.pid, verdict.has_returned, verdict.is_waited_for) == (2, True, True)
    scene.go(NEVER_S)
    assert len(scene.verdicts) == 1


def test_what_one_rank_does_after_the_last_step_may_take_its_time() -> None:
    """The others have returned, and it is in no collective."""
    scene = Scene()
    scene.worker(1)
    scene.worker(2)
    scene.go(1.0)
    scene.saying = {1: beat(is_in_step=False), 2: beat(is_in_step=False, has_returned=True)}
    scene.go(NEVER_S)
    assert scene.verdicts == []
