"""Who is frozen, and above all who is not."""

import math
import random

import pytest

from elasticd.channel.worker import (
    Entered,
    Finished,
    Formed,
    FromWorker,
    Left,
)
from elasticd.records.ids import Generation
from elasticd_agent.liveness.hang_detector import Frozen, ProcessSample
from tests.fixtures.pulse_scene import Scene, beat, sample


@pytest.fixture
def scene() -> Scene:
    """One worker, 1, in the loop, that beats."""
    scene = Scene()
    scene.worker(1)
    return scene.go(1.0)


@pytest.mark.parametrize("states", ["tttt", "TtTt", "SSSS", "S", "SI"])
def test_silent_process_that_does_not_run_is_frozen_after_a_second(
    scene: Scene, states: str
) -> None:
    """Stopped, or asleep with the GIL; told once."""
    scene.samples[1] = sample(states)
    scene.saying[1] = None
    silent_since_s = scene.now_s
    scene.go(30.0)
    assert [type(v) for v in scene.verdicts] == [Frozen]
    assert 1.0 <= scene.times_s[0] - silent_since_s <= 1.3


@pytest.mark.parametrize("states", ["TTTT", "TTTZ"])
def test_process_that_a_signal_stopped_is_frozen_sooner(scene: Scene, states: str) -> None:
    """There is no doubt what it is."""
    scene.samples[1] = sample(states)
    scene.saying[1] = None
    silent_since_s = scene.now_s
    scene.go(30.0)
    assert [type(v) for v in scene.verdicts] == [Frozen]
    assert 0.5 <= scene.times_s[0] - silent_since_s <= 0.8


def test_frozen_worker_is_found_also_where_progress_has_no_limit() -> None:
    """`--progress-timeout 0` is for those that run."""
    scene = Scene()
    scene.worker(1, limit_s=math.inf)
    scene.go(1.0)
    scene.samples[1] = sample("TTTT")
    scene.saying[1] = None
    scene.go(30.0)
    assert [type(v) for v in scene.verdicts] == [Frozen]


def test_process_is_not_stopped_for_a_moment_of_it(scene: Scene) -> None:
    """Stopped at one look, after a silence that is none of its fault: it is given its time."""
    scene.saying[1] = None
    scene.samples[1] = sample("SD")
    scene.go(0.6)
    scene.samples[1] = sample("TT")
    scene.go(0.1)
    scene.samples[1] = sample("SD")
    scene.go(1.0)
    assert not scene.verdicts


def test_reason_says_what_was_seen(scene: Scene) -> None:
    """A person reads it in the incident."""
    scene.saying[1] = None
    scene.samples[1] = sample("TT")
    scene.go(2.0)
    assert isinstance(scene.verdicts[0], Frozen)
    assert "stopped" in scene.verdicts[0].why


def test_nothing_is_asked_of_proc_while_beats_are_fresh(scene: Scene) -> None:
    """/proc is for silence alone."""
    scene.go(30.0)
    assert scene.asked == set()
    assert scene.verdicts == []


def test_starved_process_is_not_frozen(scene: Scene) -> None:
    """It wants a CPU in every sample and gets none."""
    scene.saying[1] = None
    scene.samples[1] = sample("SSRS")
    scene.go(30.0)
    assert scene.verdicts == []


def test_process_that_computes_with_the_gil_held_is_not_frozen(scene: Scene) -> None:
    """Its CPU time moves; /proc may catch it in a page fault each time."""
    scene.saying[1] = None
    for turn in range(300):
        scene.samples[1] = sample("SSSS", cpu_s=3.0 + 0.05 * turn)
        scene.go(0.1)
    assert scene.verdicts == []


def test_threads_that_look_for_the_gil_do_not_hide_a_freeze(scene: Scene) -> None:
    """They wake every 5 ms: a little CPU time, and now and then one is seen running."""
    scene.saying[1] = None
    for turn in range(30):
        scene.samples[1] = sample("SSR" if turn % 4 == 2 else "SSS", cpu_s=3.0 + 0.0018 * turn)
        scene.go(0.1)
    assert [type(v) for v in scene.verdicts] == [Frozen]


@pytest.mark.parametrize("seed", range(20))
def test_process_that_runs_now_and_then_is_not_frozen(scene: Scene, seed: int) -> None:
    """However the samples fall: 10 % of a CPU is work."""
    chance = random.Random(seed)
    scene.saying[1] = None
    cpu_s = 3.0
    for _ in range(300):
        cpu_s += 0.01
        scene.samples[1] = sample("SR" if chance.random() < 0.1 else "SS", cpu_s=cpu_s)
        scene.go(0.1)
    assert scene.verdicts == []


def test_disk_wait_counts_only_after_five_seconds(scene: Scene) -> None:
    """A page of a network file system may take its time, with the GIL held."""
    scene.saying[1] = None
    scene.samples[1] = sample("DSS")
    scene.go(5.0)
    assert scene.verdicts == []
    scene.go(1.0)
    assert [type(v) for v in scene.verdicts] == [Frozen]


@pytest.mark.parametrize(
    "message",
    [
        beat(generation=0),
        beat(is_paused=True),
        Entered(generation=Generation(2)),
        Formed(generation=Generation(1), step=5),
        Left(step=5),
    ],
)
def test_sleep_outside_the_loop_counts_only_after_five_seconds(
    scene: Scene, message: FromWorker
) -> None:
    """Libraries are loaded there, a context is made, a file is saved: with the GIL held."""
    scene.saying[1] = None
    scene.say(1, message)
    scene.go(5.0)
    assert scene.verdicts == []
    scene.go(1.0)
    assert [type(v) for v in scene.verdicts] == [Frozen]


def test_stop_outside_the_loop_counts_after_a_second(scene: Scene) -> None:
    """A stopped process is not at work anywhere."""
    scene.say(1, Entered(generation=Generation(2)))
    scene.saying[1] = None
    scene.samples[1] = sample("TTT")
    scene.go(1.4)
    assert [type(v) for v in scene.verdicts] == [Frozen]


@pytest.mark.parametrize("gone", [None, sample("Z"), sample("X"), sample("ZZ")])
def test_process_that_ended_is_not_frozen(scene: Scene, gone: ProcessSample | None) -> None:
    """Its end is the pool's to tell."""
    scene.saying[1] = None
    scene.samples[1] = gone
    scene.go(30.0)
    assert scene.verdicts == []


@pytest.mark.parametrize(
    "last", [None, Finished(step=9, epochs=1, samples=9, repeated=0, skipped=0)]
)
def test_silence_after_the_end_is_no_sign(scene: Scene, last: FromWorker | None) -> None:
    """The interpreter may take long to wind down, and beats no more."""
    scene.saying[1] = None
    scene.say(1, last)
    scene.go(100.0)
    assert scene.verdicts == []
    assert not scene.detector.is_needed


def test_worker_that_never_beat_is_not_frozen() -> None:
    """It attached, and its thread for beats is not up yet."""
    scene = Scene()
    scene.worker(1, formed=False, stepped=False)
    scene.saying[1] = None
    scene.go(100.0)
    assert scene.verdicts == []


def test_process_that_came_back_and_froze_again_is_told_again(scene: Scene) -> None:
    """Somebody continued it before anybody acted."""
    for _ in range(2):
        scene.saying[1] = None
        scene.samples[1] = sample("TT")
        scene.go(3.0)
        scene.saying[1] = beat()
        scene.go(1.0)
    assert [type(v) for v in scene.verdicts] == [Frozen, Frozen]


@pytest.mark.parametrize("gap_s", [0.7, 2.0, 50.0, 5000.0])
def test_own_stop_is_not_taken_for_silence(scene: Scene, gap_s: float) -> None:
    """The agent stood still, not the worker: nothing that it concluded holds (P9)."""
    scene.now_s += gap_s
    scene.samples[1] = sample("SS")
    scene.saying[1] = None  # What lies unread comes a moment later.
    scene.turn()
    scene.go(0.3)
    scene.saying[1] = beat()
    scene.go(20.0)
    assert scene.verdicts == []


def test_own_stop_in_the_middle_of_a_silence_begins_it_anew(scene: Scene) -> None:
    """Quiet samples from before do not count either."""
    scene.saying[1] = None
    scene.go(0.9)
    scene.now_s += 3.0
    scene.turn()
    scene.go(0.9)
    assert scene.verdicts == []
    scene.go(0.5)
    assert [type(v) for v in scene.verdicts] == [Frozen]


def test_clock_that_keeps_jumping_concludes_nothing(scene: Scene) -> None:
    """A starved agent sees its workers by fits and starts (D10)."""
    scene.saying[1] = None
    for _ in range(100):
        scene.now_s += 0.9
        scene.turn()
    assert scene.verdicts == []
