"""A worker's session: what is due when, and what is told."""

import math
import threading
import time

import pytest

from elasticd.channel.worker import (
    Attached,
    Beat,
    Broken,
    Dump,
    Entered,
    Finished,
    Leave,
    Left,
    Stacks,
    Stepped,
    ToWorker,
)
from elasticd.records.ids import Generation
from elasticd.train.interrupt import Interrupted
from elasticd.train.introspection.collective_wait import StepWait
from elasticd.train.introspection.stacks import STACKS_LIMIT_BYTES
from elasticd.train.session import agent_session as session_module
from elasticd.train.session import departure
from elasticd.train.session.heartbeat import StepDuration
from elasticd.train.session.interrupt_signal import InterruptSignal
from tests.unit.train.session.session_bench import PATIENCE_S, Bench, bench, enter, formed

__all__ = ["bench"]


def test_worker_attaches_and_says_where_it_stands(bench: Bench) -> None:
    """The first message names the process; the beats come from a thread of their own."""
    assert bench.wire.said[0] == Attached(pid=4711)
    bench.begin()
    beats: list[Beat] = []
    bench.session.call(lambda: beats.append(bench.wire.wait_for(Beat, lambda b: b.generation == 1)))
    (beat,) = beats
    assert beat.sequence == 17
    assert (beat.consumed, beat.scalars) == (99, {"loss": 0.25})
    assert (beat.epoch_samples, beat.epochs, beat.steps) == (1000, 3, 400)
    bench.wire.said.clear()
    bench.wire.wait_for(Beat, lambda b: b.generation == 0)  # One may have been on its way.


def test_loss_that_is_not_finite_is_said_by_the_thread_that_beats(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once; the step itself is not looked at."""
    monkeypatch.setattr(type(bench.state), "scalars", lambda self: {"loss": math.nan})
    bench.begin()
    bench.wire.said.clear()
    for _ in range(2):
        bench.wire.wait_for(Beat, lambda beat: math.isnan(beat.scalars.get("loss", 0.0)))
        bench.wire.said.clear()
    assert capsys.readouterr().err.count("commit(loss=nan)") == 1


def test_beats_carry_what_was_spent_on_other_things_than_training(bench: Bench) -> None:
    """Sums since the process began, and the age of the newest commit."""
    bench.begin()
    bench.session.spent.save_s = 1.5
    bench.session.spent.data_s = 2.5  # The beat that is waited for has this one, and so both.
    beat = bench.wire.wait_for(Beat, lambda b: b.data_s > 0.0)
    assert (beat.data_s, beat.save_s, beat.committed_ago_s) == (2.5, 1.5, 0.0)
    bench.step(1)
    later = bench.wire.wait_for(Beat, lambda b: b.step == 1)
    assert later.committed_ago_s > 0.0
    bench.hears(enter(2))
    bench.session.next_world()
    first, second = bench.wire.all_of(Entered)
    assert first.committed_ago_s == 0.0 < second.committed_ago_s


def test_failed_worker_tells_of_the_steps_since_its_last_beat(bench: Bench) -> None:
    """Else its agent takes them for a standstill, and the error for one of an older step."""

    def fail_after_a_beat() -> None:
        bench.wire.wait_for(Beat, lambda b: b.generation == 1)
        bench.step(1)
        bench.wire.said.clear()
        raise ZeroDivisionError

    bench.begin()
    with pytest.raises(ZeroDivisionError):
        bench.session.call(fail_after_a_beat)
    bench.session.close()
    last = bench.wire.all_of(Beat)[-1]
    assert (last.generation, last.step) == (1, 1)


def test_error_of_a_world_before_is_not_told_as_one_of_this_one(bench: Bench) -> None:
    def leave() -> None:
        bench.hears(enter(2))
        raise Interrupted

    bench.begin()
    with pytest.raises(Interrupted):
        bench.session.call(leave)
    bench.session.next_world()
    bench.session.close()
    assert bench.wire.all_of(Beat)[-1].generation == 0


def test_world_is_entered_and_its_first_commit_told(bench: Bench) -> None:
    """Entered, Formed, Stepped once, with the seconds of each phase."""
    bench.begin(step=5)
    bench.step(6)
    bench.step(7)
    (entered,) = bench.wire.all_of(Entered)
    (first,) = bench.wire.all_of(Stepped)
    assert entered.generation == 1
    assert (first.generation, first.step, first.lost_steps) == (1, 6, 0)
    assert set(first.phases_s) == {"abort", "form", "step"}


def test_future_that_was_taken_before_a_commit_is_no_wait_of_the_next_step(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit ends the step, whatever of it C++ may still wait for."""
    wait = StepWait()
    monkeypatch.setattr(session_module, "step_wait", wait)
    wait.took_future()
    wait.waited(time.monotonic() - 5.0)
    wait.took_future()
    bench.session.committed((1, 0))
    wait.waited_for_future()
    assert wait.total_s == wait.blocked_s >= 5.0
    assert [blocked_s for blocked_s, _ in wait.ends] == [wait.blocked_s]


def test_end_of_an_epoch_is_not_the_first_step(bench: Bench) -> None:
    """A commit that adds no step says nothing of how long a step took to come."""
    bench.begin(step=5)
    bench.session.committed((5, 1))
    assert not bench.wire.all_of(Stepped)


def test_change_at_once_aborts_the_group_and_ends_the_generation(bench: Bench) -> None:
    """Every leave point raises, again and again, until the next world is taken."""
    bench.begin()
    bench.step(1)
    bench.hears(enter(2))
    assert bench.group.aborted.wait(PATIENCE_S)
    assert bench.session.is_stale(1)
    for leave_point in (
        bench.session.delivered,
        bench.session.synchronize,
        lambda: bench.session.check(1),
        lambda: bench.session.check(1),
    ):
        with pytest.raises(Interrupted):
            leave_point()
    world = bench.session.next_world()
    assert world == enter(2)
    bench.session.check(1)


def test_rank_that_stood_by_is_not_told_to_have_left_for_so_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spare that comes back into a planned world had nothing to leave all that time."""
    bench.begin()
    bench.step(1)
    later_s = [0.0]
    real_s = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real_s() + later_s[0])
    bench.hears(Leave())
    waiting = threading.Thread(target=bench.session.next_world)
    waiting.start()
    bench.wire.wait_for(Left)
    later_s[0] = 1000.0
    bench.hears(enter(3, at_step=1))
    waiting.join(PATIENCE_S)
    bench.session.formed(formed(3, step=1))
    bench.step(2)
    assert bench.wire.all_of(Stepped)[-1].phases_s["abort"] < 1000.0


def test_batch_between_two_optimizers_steps_is_no_leave_point(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has a copy of what the first has changed; a script that never commits leaves late."""
    bench.begin()
    bench.step(1)
    bench.state.is_dirty = True
    monkeypatch.setattr(session_module, "DIRTY_PATIENCE_S", 1e9)
    bench.hears(enter(2))
    bench.session.delivered()
    monkeypatch.setattr(session_module, "DIRTY_PATIENCE_S", 0.0)
    with pytest.raises(Interrupted):
        bench.session.delivered()
    bench.state.is_dirty = False
    monkeypatch.setattr(session_module, "DIRTY_PATIENCE_S", 1e9)
    with pytest.raises(Interrupted):
        bench.session.delivered()


def test_planned_change_waits_for_its_step(bench: Bench) -> None:
    """Until then the generation holds and nothing is aborted; at that commit it is left."""
    bench.begin()
    bench.step(1)
    bench.hears(enter(2, at_step=3))
    bench.step(2)
    assert not bench.session.is_stale(1) and bench.session.has_newer(1)
    with pytest.raises(Interrupted):
        bench.step(3)
    assert bench.session.is_stale(1)
    assert not bench.group.aborted.is_set()


def test_planned_change_that_comes_late_lets_the_step_under_way_be_done(bench: Bench) -> None:
    """Others may be in the next step already, which needs this rank."""
    bench.begin(step=7)
    bench.hears(enter(2, at_step=5))
    bench.session.delivered()
    with pytest.raises(Interrupted):
        bench.step(8)
    assert bench.group.named == [8]


def test_rank_that_heard_first_goes_on_to_the_step_of_who_heard_last(bench: Bench) -> None:
    bench.group.others = 6
    bench.begin(step=3)
    bench.hears(enter(2, at_step=4))
    for number in (4, 5):
        bench.step(number)
    with pytest.raises(Interrupted):
        bench.step(6)


def test_no_rank_passes_the_step_that_it_named_before_all_agreed(bench: Bench) -> None:
    bench.group.is_agreed.clear()
    bench.group.others = 5
    bench.begin(step=3)
    bench.hears(enter(2, at_step=4))
    passed: list[int] = []

    def go_on() -> None:
        bench.step(4)
        passed.append(4)

    training = threading.Thread(target=go_on)
    training.start()
    training.join(0.2)
    assert not passed
    bench.group.is_agreed.set()
    training.join(PATIENCE_S)
    assert passed
    with pytest.raises(Interrupted):
        bench.step(5)


def test_urgent_change_is_not_kept_waiting_by_a_planned_one(bench: Bench) -> None:
    bench.group.is_agreed.clear()
    bench.begin(step=3)
    bench.hears(enter(2, at_step=4))
    threading.Timer(0.1, bench.wire.tell, [enter(3)]).start()
    with pytest.raises(Interrupted):
        bench.step(4)
    bench.group.is_agreed.set()


def test_urgent_change_stays_urgent_when_a_planned_one_follows(bench: Bench) -> None:
    """The group is aborted already: nobody trains on in it up to some step."""
    bench.begin(step=3)
    bench.hears(Leave())
    bench.wire.tell(enter(3, at_step=50))
    bench.wire.tell(Dump())
    bench.wire.wait_for(Stacks)
    assert bench.session.is_stale(1)
    with pytest.raises(Interrupted):
        bench.session.check(4)
    assert not bench.group.named


def test_silent_store_does_not_hold_a_rank(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departure, "LIMIT_S", 0.1)
    bench.group.is_agreed.clear()
    bench.begin(step=3)
    bench.hears(enter(2, at_step=4))
    with pytest.raises(Interrupted):
        bench.step(4)
    bench.group.is_agreed.set()


def test_rank_whose_peers_never_answer_leaves_at_the_step_that_it_named(bench: Bench) -> None:
    bench.group.others = None
    bench.begin(step=3)
    bench.hears(enter(2, at_step=4))
    with pytest.raises(Interrupted):
        bench.step(4)


def test_planned_change_does_not_stop_an_optimizer(bench: Bench) -> None:
    """Its collectives are done by all: it is cheaper to commit the step than to do it again."""
    bench.begin(step=4)
    bench.session.delivered()
    bench.hears(enter(2, at_step=4))
    bench.session.synchronize()
    with pytest.raises(Interrupted):
        bench.session.check(5)


def test_group_of_an_overtaken_world_is_aborted_as_soon_as_it_is_known(bench: Bench) -> None:
    """A change may come between taking a world and making its group."""
    bench.wire.tell(enter(1))
    bench.session.next_world()
    bench.hears(enter(2))
    bench.session.use(bench.group)
    assert bench.group.aborted.is_set()


def test_older_world_is_not_entered(bench: Bench) -> None:
    """Messages of one agent come in order; a repeated one must not bring an old world back."""
    bench.begin(generation=3)
    for message in (enter(2), enter(3), Dump()):
        bench.wire.tell(message)
    bench.wire.wait_for(Stacks)
    assert not bench.session.has_newer(3)
    bench.hears(enter(4), generation=3)
    world = bench.session.next_world()
    assert world is not None and world.generation == 4


def test_leave_is_answered_and_another_world_awaited(bench: Bench) -> None:
    bench.begin()
    bench.step(1)
    bench.hears(Leave(at_step=2))
    with pytest.raises(Interrupted):
        bench.step(2)
    bench.session.use(None)
    threading.Timer(0.05, bench.wire.tell, [enter(9)]).start()
    world = bench.session.next_world()
    assert world is not None and world.generation == 9
    assert [left.step for left in bench.wire.all_of(Left)] == [2]


def test_step_in_flight_counts_as_lost_only_if_it_is_done_again(bench: Bench) -> None:
    """Where another rank had applied it, the state comes from there and nothing was lost."""
    for generation, begins_at, lost in ((2, 4, 1), (3, 6, 0)):
        bench.begin(generation=generation - 1, step=3)
        bench.session.committed((4, 0))
        bench.session.delivered()
        bench.hears(enter(generation), generation=generation - 1)
        bench.session.next_world()
        bench.session.formed(formed(generation, begins_at))
        bench.session.committed((begins_at + 1, 0))
        stepped = bench.wire.wait_for(Stepped, lambda s, g=generation: s.generation == g)  # type: ignore[misc]
        assert stepped.lost_steps == lost
        bench.wire.said.clear()
        bench.session._entered = 0  # Begin again with generation 2.


def test_agents_end_ends_the_run(bench: Bench) -> None:
    """Nobody could say any more when the world is over; the pool ends what is left."""
    bench.begin()
    bench.wire.close()
    assert bench.group.aborted.wait(PATIENCE_S)
    with pytest.raises(Interrupted):
        bench.session.check(1)
    assert bench.session.next_world() is None


def test_dump_is_answered_while_the_training_thread_hangs(bench: Bench) -> None:
    """The place where it hangs is in the answer, by name; the answer is not longer than agreed."""
    bench.begin()

    def hangs_right_here() -> None:
        bench.wire.tell(Dump())
        text = bench.wire.wait_for(Stacks).text
        assert "hangs_right_here" in text and "MainThread" in text
        assert "elasticd-hearing" in text and "elasticd-beating" in text
        assert len(text.encode()) <= STACKS_LIMIT_BYTES

    bench.session.call(hangs_right_here)


def test_stacks_are_cut(bench: Bench) -> None:
    def deep(depth: int) -> None:
        if depth:
            deep(depth - 1)
            return
        bench.wire.tell(Dump())
        assert len(bench.wire.wait_for(Stacks).text.encode()) <= STACKS_LIMIT_BYTES

    def branch(depth: int) -> None:
        # Alternating functions: Python folds repeated lines of one recursion.
        deep(0) if not depth else twig(depth - 1)

    def twig(depth: int) -> None:
        deep(0) if not depth else branch(depth - 1)

    branch(300)


def test_pause_and_broken_and_finished_are_told(bench: Bench) -> None:
    bench.begin()
    bench.session.pause("evaluation")
    bench.wire.wait_for(Beat, lambda b: b.is_paused and b.why_paused == "evaluation")
    bench.session.pause(None)
    bench.wire.said.clear()
    bench.wire.wait_for(Beat, lambda b: not b.is_paused)
    bench.session.broken("boo")
    assert bench.wire.wait_for(Broken) == Broken(generation=Generation(1), why="boo")
    end = Finished(step=1, epochs=0, samples=1, repeated=0, skipped=0)
    bench.session.finished(end)
    assert bench.wire.wait_for(Finished) == end


@pytest.mark.parametrize(
    ("wanted", "ends"), [(enter(2), True), (enter(2, size=1), False), (Leave(), False)]
)
def test_rank_that_nothing_can_fetch_ends_only_where_others_go_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, wanted: ToWorker, ends: bool
) -> None:
    """Its own copy of the state may be the last."""
    ended: list[bool] = []
    monkeypatch.setattr(bench.session, "_end_process", lambda: ended.append(True))
    monkeypatch.setattr(InterruptSignal, "send_if_due", lambda self, now_s: 60.0)
    monkeypatch.setattr(InterruptSignal, "is_stuck", lambda self, now_s: True)
    bench.begin()
    bench.hears(wanted)
    assert bench.session._interrupt_training(time.monotonic())
    assert bool(ended) is ends


def test_each_commit_may_be_followed_by_a_comparison(bench: Bench) -> None:
    bench.begin()
    steps: list[int] = []
    bench.session.on_commit = steps.append
    bench.step(1)
    bench.step(2)
    assert steps == [1, 2]


def test_step_time_is_smoothed_and_begins_anew_with_a_generation() -> None:
    """The time between two generations is no step."""
    duration = StepDuration()
    assert duration.take(1, 0, 0.0) == 0.0
    assert duration.take(1, 1, 10.0) == 0.0
    assert duration.take(1, 3, 12.0) == pytest.approx(1.0)
    assert duration.take(1, 3, 12.0) == pytest.approx(1.0)
    assert 1.0 < duration.take(1, 4, 14.0) < 2.0
    before = duration.step_s
    duration.take(2, 4, 14.0)
    duration.take(2, 5, 99.0)
    assert duration.step_s == before
