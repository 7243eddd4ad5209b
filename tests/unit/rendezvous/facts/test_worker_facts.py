"""What a worker in `elasticd.run` tells its agent."""

import pytest

from elasticd.records.failure import SLOT_LIMIT
from elasticd.records.ids import Generation, Nonce, Slot
from elasticd.records.member import StallLimit
from elasticd.records.reason import Reason
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.next_world.node_condition import is_useless
from elasticd.rendezvous.own_record import desired_member
from elasticd.rendezvous.slot_failures import STEADY_STEPS
from tests.unit.rendezvous.cases import Told, failure, running
from tests.unit.rendezvous.trainers import (
    attach,
    entered,
    finished,
    kept,
    paced,
    stall,
    stepped,
    training,
)


def test_prepared_worker_that_ends_early_is_tried_ever_more_slowly() -> None:
    """Its slot alone waits."""
    told = training(1)
    told.tell(ev.SlotsGranted(slots=(Slot(0), Slot(1), Slot(2))))
    for count, pause_s in enumerate((1.0, 2.0, 4.0), start=1):
        nonce = told.state.workers[Slot(1)].nonce
        told.tell(ev.WorkerExited(slot=Slot(1), nonce=nonce, code=1, failure=failure()))
        assert (
            told.state.slot_failures[Slot(1)].count == count and Slot(1) not in told.state.workers
        )
        told.tick(pause_s - 0.1)
        assert Slot(1) not in told.state.workers and Slot(2) in told.state.workers
        told.tick(0.2)
        assert Slot(1) in told.state.workers


def test_failure_told_before_the_end_is_charged_once() -> None:
    """By an exception, or by a signal that is known before the process is reaped."""
    told = training(1)
    told.tell(ev.SlotsGranted(slots=(Slot(0), Slot(1))))
    nonce = told.state.workers[Slot(1)].nonce
    told.tell(ev.WorkerFailed(slot=Slot(1), nonce=nonce, failure=failure()))
    told.tell(ev.WorkerExited(slot=Slot(1), nonce=nonce, code=1, failure=failure()))
    assert told.state.slot_failures[Slot(1)].count == 1 and Slot(1) not in told.state.workers


def test_worker_that_fails_again_after_its_first_steps_is_replaced_ever_more_slowly() -> None:
    """The first of them at once; and one that trained for a while begins with a clean record."""
    told = training(1)
    step = 5
    for count, pause_s in enumerate((0.0, 1.0, 2.0), start=1):
        _fail(told, steps=3, step=step)
        assert told.state.failure is not None and told.state.failure.in_a_row == count
        retry_at_s = told.state.slot_failures[Slot(0)].retry_at_s or told.now_s
        assert retry_at_s == pytest.approx(told.now_s + pause_s)
        step = _replace(told, count + 1, pause_s, step + 10)
    _fail(told, steps=STEADY_STEPS, step=step)
    assert told.state.slot_failures[Slot(0)].count == 1


def test_slot_whose_processes_are_killed_waits_longer_and_is_left_out() -> None:
    """As the kernel does for want of memory; the progress of the others is no merit of the slot."""
    told = training(1)
    step = 5
    for count in range(1, SLOT_LIMIT + 1):
        _fail(told, steps=3, step=step, signal="SIGKILL")
        assert told.state.slot_failures[Slot(0)].count == count
        if count == SLOT_LIMIT:
            break
        pause_s = 0.0 if count == 1 else min(60.0, 2.0 ** (count - 2))
        retry_at_s = told.state.slot_failures[Slot(0)].retry_at_s or told.now_s
        assert retry_at_s == pytest.approx(told.now_s + pause_s)
        step = _replace(told, count + 1, pause_s, step + 1000)
    assert told.state.failure is not None and told.state.failure.is_last_of_slot
    assert desired_member(told.state).given_up == (Slot(0),)
    assert is_useless(desired_member(told.state))
    told.tick(3600.0)
    assert Slot(0) not in told.state.workers, "no other process is started there"


def test_process_that_never_came_to_train_is_tried_for_ever() -> None:
    """It costs nobody else anything: whoever mends the machine need not tell us."""
    told = training(1)
    told.tell(ev.SlotsGranted(slots=(Slot(0), Slot(1))))
    for _ in range(2 * SLOT_LIMIT):
        nonce = told.state.workers[Slot(1)].nonce
        told.tell(ev.WorkerExited(slot=Slot(1), nonce=nonce, code=1, failure=failure()))
        told.tick(61.0)
    assert Slot(1) in told.state.workers and not desired_member(told.state).given_up


def test_slot_whose_process_leaves_in_the_middle_with_0_waits_too() -> None:
    """It did not fail by its own word, and the others lost it all the same."""
    told = training(1)
    told.tell(ev.WorkerExited(slot=Slot(0), nonce=Nonce(1), code=0))
    assert told.state.slot_failures[Slot(0)].count == 1
    told = training(1)
    finished(told)
    told.tell(ev.WorkerExited(slot=Slot(0), nonce=Nonce(1), code=0))
    assert not told.state.slot_failures, "that one had trained to the end"


def _fail(told: Told, *, steps: int, step: int, signal: str = "") -> None:
    """The process in slot 0 raises, or is killed, after so many steps."""
    generation = told.state.adopted
    nonce = told.state.workers[Slot(0)].nonce
    paced(told, generation, step + steps - 1, nonce=nonce)
    told.tell(
        ev.WorkerFailed(
            slot=Slot(0), nonce=nonce, failure=failure(generation=generation, signal=signal)
        ),
    )
    told.tell(ev.WorkerExited(slot=Slot(0), nonce=nonce, code=1))


def _replace(told: Told, generation: int, pause_s: float, step: int) -> int:
    """Another process takes part in this generation, from this step on."""
    while told.written():
        pass
    told.status(running(generation, is_in_process=True))
    told.world(kept(generation, 1))
    told.tick(pause_s + 0.1)
    nonce = told.state.workers[Slot(0)].nonce
    told.tell(ev.WorkerStarted(slot=Slot(0), nonce=nonce))
    attach(told, 0, nonce)
    later = generation + 100
    told.status(running(later, is_in_process=True))
    told.world(kept(later, 1, 0, nonces={0: (nonce,)}))
    entered(told, later, 0, nonce)
    stepped(told, later, step, 0, nonce)
    return step


def test_worker_has_the_state_once_its_group_stands() -> None:
    """It may be the only one left before anybody has committed."""
    told = training(1)
    told.tell(ev.SlotsGranted(slots=(Slot(0), Slot(1))))
    nonce = told.state.workers[Slot(1)].nonce
    told.tell(ev.WorkerStarted(slot=Slot(1), nonce=nonce))
    attach(told, 1, nonce)
    told.world(kept(2, 0, 1, nonces={0: (1, nonce)}))
    entered(told, 2, 1, nonce)
    assert not told.state.workers[Slot(1)].has_state
    told.tell(ev.WorkerFormed(slot=Slot(1), nonce=nonce, generation=Generation(2)))
    while told.written():
        pass
    assert told.state.member_sent is not None and told.state.member_sent.slots[1].has_state


def test_slot_without_a_process_is_offered_as_what_comes_next() -> None:
    """It names nobody, and proves that whoever was there has ended."""
    told = training(1)
    told.tell(ev.SlotsGranted(slots=(Slot(0), Slot(1))))
    told.tell(ev.WorkerExited(slot=Slot(1), nonce=Nonce(1), code=1, failure=failure()))
    while told.written():
        pass
    assert told.state.member_sent is not None
    offer = told.state.member_sent.slots[1]
    assert offer.nonce == 2 and not offer.is_prepared


def test_stall_counts_in_the_generation_that_the_worker_is_still_in() -> None:
    """The step at which it should leave may never be made."""
    told = training(1)
    told.world(kept(2, 0, 1, at_step=9, reason=Reason.JOINED))
    told.tell(_stalled(generation=1))
    found = told.state.workers[Slot(0)].stall
    assert found is not None and found.generation == 1
    entered(told, 2)
    assert told.state.workers[Slot(0)].stall is None
    told.tell(_stalled(generation=1))
    assert told.state.workers[Slot(0)].stall is None


def test_stall_is_written_even_while_a_world_forms() -> None:
    """Who judges the formation must know."""
    told = training(1)
    told.world(kept(2, 0, 1, at_step=9, reason=Reason.JOINED))
    told.tell(_stalled(generation=1))
    assert told.count(fx.WriteMember) == 1


def test_pause_counts_in_the_generation_that_the_worker_is_still_in() -> None:
    """And it is over with it."""
    told = training(1)
    told.world(kept(2, 0, 1, at_step=9, reason=Reason.JOINED))
    paced(told, 1, 6, is_paused=True)
    assert told.state.workers[Slot(0)].is_paused and told.count(fx.WriteMember) == 1
    entered(told, 2)
    assert not told.state.workers[Slot(0)].is_paused


def test_worker_breaks_a_generation_only_once() -> None:
    """All ranks of the node say so."""
    told = training(1)
    broken = ev.WorkerBroken(slot=Slot(0), nonce=Nonce(1), generation=Generation(1))
    told.tell(broken)
    assert told.state.broken == 1
    before = told.state
    told.tell(broken, after_s=1.0)
    assert told.state.broken == 1 and told.state.timing == before.timing


def test_finished_worker_is_offered_to_no_world_and_is_no_loss() -> None:
    """It keeps its number until its script has ended, and after."""
    told = training(1)
    finished(told)
    while told.written():
        pass
    sent = told.state.member_sent
    assert sent is not None
    (offer,) = sent.slots
    assert offer.is_finished and not offer.is_prepared and offer.nonce == 1
    told.exited(0)
    while told.written():
        pass
    assert told.state.member_sent is not None
    (offer,) = told.state.member_sent.slots
    assert offer.is_finished and not offer.is_prepared and offer.nonce == 1


def test_short_stall_is_told_where_other_nodes_may_wait() -> None:
    """With one node its own agent sees all that there is to see."""
    short = _stalled(generation=1, limit=StallLimit.RECORD)
    for told, is_told in ((training(), False), (training(1), True)):
        told.tell(short)
        assert (told.state.workers[Slot(0)].stall is not None) is is_told
    alone = training()
    alone.tell(_stalled(generation=1))
    assert alone.state.workers[Slot(0)].stall is not None


def test_worker_that_gets_on_again_takes_its_word_back() -> None:
    """Also from the node's record; that it returned from `train` stays true."""
    told = training(1)
    told.tell(_stalled(generation=1))
    while told.written():
        pass
    assert told.state.member_sent is not None and told.state.member_sent.stall is not None
    resumed = ev.WorkerResumed(slot=Slot(0), nonce=Nonce(1))
    told.tell(resumed)
    while told.written():
        pass
    assert told.state.member_sent.stall is None
    told.tell(_stalled(generation=1, has_returned=True))
    told.tell(resumed)
    assert told.state.workers[Slot(0)].stall is not None


def _stalled(
    *,
    generation: int,
    limit: StallLimit = StallLimit.PROGRESS,
    has_returned: bool = False,
) -> ev.WorkerStalled:
    found = stall(3, generation=generation, step=6, limit=limit, has_returned=has_returned)
    return ev.WorkerStalled(stall=found)
