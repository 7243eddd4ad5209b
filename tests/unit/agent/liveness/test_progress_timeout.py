"""What an agent tells the other nodes of workers that stand still, and what it takes back."""

import math

import pytest

from elasticd.channel.worker import Entered, Formed, Stepped
from elasticd.records.ids import Generation
from elasticd.records.member import StallLimit
from tests.fixtures.pulse_scene import NEVER_S, Scene, beat


@pytest.fixture
def scene() -> Scene:
    """One worker, 1, in the loop, that beats."""
    scene = Scene()
    scene.worker(1)
    return scene.go(1.0)


@pytest.fixture
def pair(scene: Scene) -> Scene:
    """Two workers that step together."""
    scene.worker(2)
    for step in range(5, 10):
        scene.saying = {1: beat(step=step, sequence=50), 2: beat(step=step, sequence=50)}
        scene.go(1.0)
    return scene


def test_waiting_for_another_node_is_told_and_blames_nobody_here(pair: Scene) -> None:
    """All ranks here wait at the same place: who is behind is elsewhere."""
    pair.saying = {1: beat(step=10, sequence=101), 2: beat(step=10, sequence=101)}
    pair.go(4.8)
    assert pair.told == []
    pair.go(1.0)
    assert pair.told == [(1, StallLimit.RECORD), (2, StallLimit.RECORD)]
    pair.go(49.2)
    assert pair.verdicts == [] and len(pair.told) == 2
    pair.go(6.0)
    assert {v.pid for v in pair.verdicts} == {1, 2}


def test_rank_that_waits_in_a_collective_is_not_the_one_that_others_here_wait_for(
    pair: Scene,
) -> None:
    """Two other nodes are apart, or one of theirs hangs: all here wait, at two places."""
    behind = beat(step=10, sequence=101, is_in_collective=True)
    ahead = beat(step=10, sequence=102, is_in_collective=True)
    pair.saying = {1: behind, 2: ahead}
    pair.go(6.0)
    assert pair.told == [(1, StallLimit.RECORD), (2, StallLimit.RECORD)]
    pair.go(49.0)
    assert pair.verdicts == []
    pair.go(6.0)
    assert {v.pid for v in pair.verdicts} == {1, 2}, "no verdict is held for ever"


def test_rank_that_hangs_after_its_collective_ended_is_found_from_then_on(pair: Scene) -> None:
    """The others here have waited for longer; it was not they for whom it waited."""
    pair.saying = {1: beat(sequence=101, is_in_collective=True), 2: beat(sequence=102)}
    pair.go(8.0)
    pair.saying[1] = beat(sequence=101)
    pair.go(4.8)
    assert pair.verdicts == []
    pair.go(12.0)
    assert [v.pid for v in pair.verdicts] == [1]


def test_rank_that_waits_does_not_hide_one_that_hangs_beside_it(pair: Scene) -> None:
    """One is in the collective that it has begun, the other has its result and does not go on."""
    pair.worker(3)
    pair.saying = {
        1: beat(step=10, sequence=101, is_in_collective=True),
        2: beat(step=10, sequence=102, is_in_collective=True),
        3: beat(step=10, sequence=101),
    }
    pair.go(9.0)
    assert [v.pid for v in pair.verdicts] == [3]
    assert pair.told == [(1, StallLimit.RECORD)]


def test_job_without_a_limit_has_no_short_one() -> None:
    """`--progress-timeout 0`: somebody is in a debugger, while the others wait."""
    scene = Scene()
    for pid in (1, 2):
        scene.worker(pid, limit_s=math.inf)
    scene.go(1.0)
    scene.saying = {1: beat(sequence=60), 2: beat(sequence=61)}
    scene.go(NEVER_S)
    scene.saying[1] = beat(sequence=61)
    scene.go(NEVER_S)
    assert scene.verdicts == [] and scene.told == []


def test_first_step_is_told_to_nobody() -> None:
    """It compiles."""
    scene = Scene()
    scene.worker(1, stepped=False)
    scene.saying[1] = beat(step=0, sequence=1)
    scene.go(55.0)
    assert scene.told == []


def test_who_compiled_before_is_told_as_one_who_may_do_so_again(scene: Scene) -> None:
    """It waits as others do, and is itself not to blame before twice that time."""
    scene.saying[1] = beat(step=6, sequence=60)
    scene.go(10.0)
    for step in range(7, 200):
        scene.saying[1] = beat(step=step, sequence=70)
        scene.go(0.4)
    scene.told.clear()
    scene.go(6.0)
    assert scene.told == [(1, StallLimit.STEP)]
    scene.go(15.0)
    assert scene.told == [(1, StallLimit.STEP), (1, StallLimit.RECORD)]


def test_who_was_told_is_blamed_here_once_others_here_wait(pair: Scene) -> None:
    """They were at the same place for a while."""
    pair.saying = {1: beat(step=10, sequence=101), 2: beat(step=10, sequence=101)}
    pair.go(8.0)
    assert len(pair.told) == 2
    pair.saying[2] = beat(step=10, sequence=102)
    pair.go(9.0)
    assert [v.pid for v in pair.verdicts] == [1]


def test_who_gets_on_again_takes_back_what_was_told(scene: Scene) -> None:
    """And is left alone for a minute: rank 0 of another node may evaluate again and again."""
    scene.saying[1] = beat(step=6, sequence=60)
    scene.go(8.0)
    assert scene.told == [(1, StallLimit.RECORD)]
    for step in range(7, 12):
        scene.saying[1] = beat(step=step, sequence=60)
        scene.go(10.0)
    assert scene.resumed == [1] and len(scene.told) == 1
    for step in range(12, 60):
        scene.saying[1] = beat(step=step, sequence=60)
        scene.go(1.0)
    scene.go(40.0)
    assert len(scene.told) > 1, "a minute later it is told again"


def test_pause_takes_back_what_was_told(scene: Scene) -> None:
    """`state.pause`, entered late: nothing of it is progress."""
    scene.saying[1] = beat(step=6, sequence=60)
    scene.go(8.0)
    scene.saying[1] = beat(step=6, sequence=60, is_paused=True)
    scene.go(1.0)
    assert scene.told == [(1, StallLimit.RECORD)] and scene.resumed == [1]


def test_what_was_told_is_forgotten_in_the_next_generation(scene: Scene) -> None:
    """The core has forgotten it too, and the clock begins anew."""
    scene.saying[1] = beat(step=6, sequence=60)
    scene.go(8.0)
    scene.say(1, Entered(generation=Generation(2)))
    scene.say(1, Formed(generation=Generation(2), step=6))
    scene.say(1, Stepped(generation=Generation(2), step=7))
    scene.saying[1] = beat(step=7, sequence=1, generation=2)
    scene.go(4.8)
    assert scene.resumed == [] and len(scene.told) == 1
    scene.go(15.0)
    assert scene.told[1:] == [(1, StallLimit.RECORD)]
