"""A stop as a node sees it: who is asked to save, who is ended when, and what is told."""

from pathlib import Path

import pytest

from elasticd.channel import worker as ch
from elasticd.records.ids import Generation, Nonce, Slot
from elasticd.records.member import Saved
from elasticd.rendezvous import event as ev
from elasticd_agent.worker_setup.worker_env import WorkerFiles
from elasticd_agent.workers import final_save as module
from elasticd_agent.workers.attached_workers import AttachedWorkers
from elasticd_agent.workers.final_save import FinalSaves, end_share_s
from tests.unit.control.world_case import world

PID, OTHER = 11, 12
GRACE_S = 30.0


class Case:
    """Two workers of one node, in a world, and a clock."""

    def __init__(self, *, is_wanted: bool = True) -> None:
        self.told: list[tuple[int, ch.ToWorker]] = []
        self.events: list[ev.Event] = []
        self.ended: list[tuple[int, float]] = []
        self.now_s = 100.0
        self.attached = AttachedWorkers(lambda *told: self.told.append(told), self.events.append)
        self.final_saves = FinalSaves(self.attached, is_wanted=is_wanted)
        for slot, pid in enumerate((PID, OTHER)):
            self.attached.expect(pid, Slot(slot), Nonce(1))

    def begin(self, pid: int, *, step: int = 7) -> None:
        """Attach, enter a world, and be at this step."""
        self.attached.receive(pid, ch.Attached(pid=pid))
        one = world(1, "a")
        files = WorkerFiles(out=Path("o"), err=Path("e"), error=Path("j"))
        self.attached.enter(pid, one, next(iter(one.placements())), files)
        self.attached.receive(pid, ch.Formed(generation=Generation(1), step=step))
        self.told.clear()

    def ask(self, pid: int, *, grace_s: float = GRACE_S, is_end: bool = True) -> bool:
        end = (lambda left_s: self.ended.append((pid, left_s))) if is_end else None
        return self.final_saves.ask(pid, rank=pid, grace_s=grace_s, end=end)


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    case = Case()
    monkeypatch.setattr(module, "now_s", lambda: case.now_s)
    return case


def test_worker_saves_and_is_ended_with_what_is_left(case: Case) -> None:
    """It has less than the whole grace: the rest is for its way out."""
    case.begin(PID)
    assert case.ask(PID)
    ((pid, message),) = case.told
    assert (pid, message) == (PID, ch.Leave(at_step=0, save_within_s=GRACE_S - 4.0))
    assert not case.ended
    case.now_s += 12.0
    case.attached.receive(PID, ch.Left(step=9, durable_step=9))
    assert case.ended == [(PID, GRACE_S - 12.0)]
    assert case.final_saves.is_ended(PID)
    case.final_saves.forget(PID)
    assert case.final_saves.saved == Saved(at_step=9, durable_step=9)


def test_worker_that_is_in_no_world_has_nothing_to_save(case: Case) -> None:
    """Nor one that has left its last, nor one that is to be ended at once."""
    case.attached.receive(PID, ch.Attached(pid=PID))
    assert not case.ask(PID)
    case.begin(PID)
    assert not case.ask(PID, grace_s=0.0)
    case.attached.receive(PID, ch.Left(step=9))
    assert not case.ask(PID)
    assert not case.ask(99)
    assert not case.told and case.final_saves.saved is None


def test_worker_on_its_way_into_a_world_is_asked_too(case: Case) -> None:
    """Others of that world may be training in it."""
    case.begin(PID)
    assert case.attached.progress_of(OTHER) is None
    assert case.ask(PID)


def test_job_without_checkpoints_is_stopped_as_ever() -> None:
    case = Case(is_wanted=False)
    case.begin(PID)
    assert not case.ask(PID)


def test_worker_that_ends_without_an_answer_is_told_of(case: Case) -> None:
    """At the step that it was last heard of."""
    case.begin(PID, step=7)
    case.ask(PID)
    assert case.final_saves.is_asked(PID) and not case.final_saves.is_ended(PID)
    case.final_saves.forget(PID)
    why = "rank 11 ended before it had saved its part"
    assert case.final_saves.saved == Saved(at_step=7, why=why)


def test_one_that_knows_what_is_durable_is_enough(case: Case) -> None:
    """Whatever others could not say."""
    for pid in (PID, OTHER):
        case.begin(pid)
        case.ask(pid)
    case.attached.receive(OTHER, ch.Left(step=9, durable_step=9))
    case.final_saves.forget(PID)
    assert case.final_saves.saved == Saved(at_step=9, durable_step=9)


def test_who_only_leaves_a_world_is_ended_by_others(case: Case) -> None:
    """Too few nodes are left: its state may be wanted again."""
    case.begin(PID)
    assert case.ask(PID, is_end=False)
    case.attached.receive(PID, ch.Left(step=9, durable_step=9))
    assert not case.ended and not case.final_saves.is_ended(PID)
    assert [type(event) for event in case.events][-1] is ev.WorkerLeft


def test_second_order_does_not_begin_the_time_anew(case: Case) -> None:
    case.begin(PID)
    case.ask(PID)
    assert case.ask(PID)
    assert len(case.told) == 1


def test_worker_that_went_on_in_another_world_is_asked_anew(case: Case) -> None:
    """Two nodes left one after the other: the first time a world of the second was under way."""
    case.begin(PID)
    assert case.ask(PID, is_end=False)
    case.begin(PID)
    case.final_saves.resume(PID)
    assert not case.final_saves.is_asked(PID)
    assert case.ask(PID)
    assert len(case.told) == 1
    case.attached.receive(PID, ch.Left(step=9, durable_step=9))
    assert case.final_saves.saved == Saved(at_step=9, durable_step=9)
    assert case.ended == [(PID, GRACE_S)]


def test_ordinary_goodbye_says_nothing_of_the_state(case: Case) -> None:
    case.begin(PID)
    case.attached.receive(PID, ch.Left(step=9))
    case.final_saves.forget(PID)
    assert case.final_saves.saved is None


@pytest.mark.parametrize(("grace_s", "share_s"), [(30.0, 2.0), (5.0, 1.0), (0.0, 0.0)])
def test_end_has_a_part_of_the_grace(grace_s: float, share_s: float) -> None:
    assert end_share_s(grace_s) == share_s
