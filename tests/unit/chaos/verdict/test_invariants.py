"""The verdict on histories written by hand: a right one, and one for each way to be wrong."""

import ast
from pathlib import Path

import pytest

import chaos
from chaos.history.records import (
    Applied,
    Entered,
    GaveUp,
    LeftBehind,
    Outlived,
    Status,
    Took,
)
from chaos.plan.scenario import Verdict
from chaos.verdict.finding import Judgement
from chaos.verdict.invariants import judge
from tests.unit.chaos.play import Play, losses

WANT = Verdict(full_s=2.0)
JUDGING = (
    *("verdict.invariants", "verdict.account", "verdict.finding", "verdict.report", "error"),
    *("history.lineage", "history.recovery", "history.records"),
    *("plan.scenario", "plan.fault"),
    *("why.expectation", "why.rule", "why.goodput"),
)


def right() -> Play:
    """Two ranks, one is killed in step 6, the other goes on, a replacement joins."""
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault()
    play.generation(2, [11], base=5, steps=3)
    play.generation(3, [11, 13], base=8, steps=6)
    return play


def verdict(play: Play, *, want: Verdict = WANT, phase: str = "succeeded") -> Judgement:
    return judge(play.history(phase=phase), want, losses(100))


def broken(play: Play, *, want: Verdict = WANT, phase: str = "succeeded") -> set[str]:
    found = verdict(play, want=want, phase=phase)
    assert found.holds == all(finding.holds for finding in found.findings)
    return {finding.rule for finding in found.findings if not finding.holds}


def test_a_right_run_holds_every_rule() -> None:
    found = verdict(right())
    assert [finding for finding in found.findings if not finding.holds] == []
    assert found.committed_steps == 14
    assert found.samples == 4 * 10 + 8
    assert found.worst_parity == 0.0


def test_two_steps_of_an_old_generation_break_i1() -> None:
    play = right()
    for step in (6, 7):
        play.step(1, [11, 12], step, appliers=[1])
    assert "I1" in broken(play)


def test_one_late_step_of_a_rank_that_had_not_heard_is_allowed() -> None:
    play = right()
    pids = [11, 12]
    play.step(1, pids, 6, appliers=[1])
    found = verdict(play)
    assert found.holds, found.findings
    assert found.late_steps == 1


def test_a_sample_that_counts_twice_breaks_i4() -> None:
    play = right()
    play.change(Took, {"samples": (0, 1, 2, 3, 3), "loss": 5 / 7}, step=7)
    assert broken(play) == {"I4"}, "all others are there: nothing else gives it away"


def test_a_sample_that_is_skipped_breaks_i4() -> None:
    play = right()
    play.change(Took, {"samples": (0,)}, step=1, rank=0)
    assert broken(play) == {"I4", "parity"}


def test_a_step_that_nobody_made_breaks_i4() -> None:
    play = right()
    play.drop(Took, step=4)
    play.drop(Applied, step=4)
    assert "I4" in broken(play)


def test_replicas_that_differ_break_i6() -> None:
    play = right()
    play.change(Applied, {"digest": "other"}, step=10, rank=1)
    assert broken(play) == {"I6"}


def test_a_generation_that_begins_with_another_state_breaks_i6() -> None:
    play = right()
    play.change(Entered, {"digest": "other"}, generation=3)
    assert broken(play) == {"I6"}


def test_a_rank_that_is_two_processes_breaks_i7() -> None:
    play = right()
    play.change(Applied, {"pid": 99}, step=12, rank=1)
    assert broken(play) == {"I7"}


def test_the_same_pid_in_two_pods_is_two_processes() -> None:
    """Every agent's container counts from 1."""
    play = Play()
    play.generation(1, [7, 7], base=0, steps=3)
    for kind in (Entered, Took, Applied):
        for rank in (0, 1):
            play.change(kind, {"pod": f"pod{rank}@5"}, rank=rank)
    assert broken(play) == set()
    play.change(Applied, {"pod": "pod0@9"}, step=2, rank=0)
    assert broken(play) == {"I7"}, "its container was started again meanwhile"


def test_a_process_that_goes_back_a_generation_breaks_i7() -> None:
    play = right()
    play.now_s += 1
    play.generation(2, [11], base=14, steps=0)
    assert "I7" in broken(play)


def test_a_state_from_nowhere_breaks_i7() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=3)
    play.generation(2, [11, 12], base=7, steps=3)
    assert "I7" in broken(play)


@pytest.mark.parametrize(("pids", "after_s"), [((12,), 0.5), ((), 9.0)])
def test_a_worker_that_outlives_its_agent_breaks_i8(pids: tuple[int, ...], after_s: float) -> None:
    play = right()
    play.records.append(Outlived(at_s=101.0, node="n1", life=1, after_s=after_s, pids=pids))
    assert broken(play) == {"I8"}


def test_time_in_which_workers_were_stopped_does_not_break_i8() -> None:
    """All processes of a node were stopped for 6 s, the guardian of its pool too, and its agent was
    killed: nobody was there to end its workers, which did nothing.
    """
    play = right()
    stood = Outlived(at_s=107.0, node="n1", life=1, after_s=5.99, pids=(), stopped_s=5.95)
    play.records.append(stood)
    assert broken(play) == set()


def test_worker_that_was_stopped_and_then_runs_on_breaks_i8() -> None:
    play = right()
    ran_on = Outlived(at_s=110.0, node="n1", life=1, after_s=9.2, pids=(), stopped_s=6.0)
    play.records.append(ran_on)
    assert broken(play) == {"I8"}


def test_a_late_recovery_breaks_i9() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault()
    play.now_s += 1.5
    play.generation(2, [11, 12], base=5, steps=5)
    assert broken(play) == {"I9"}


def test_a_step_in_flight_is_no_recovery() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault()
    play.change(Applied, {"at_s": play.now_s + 0.01}, step=5)
    assert broken(play) == {"I9"}


def test_a_job_that_never_is_whole_again_breaks_i9() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault()
    play.generation(2, [11], base=5, steps=5)
    assert broken(play) == {"I9"}


def test_what_the_runner_waited_for_in_vain_breaks_i9() -> None:
    play = right()
    play.records.append(GaveUp(at_s=101.0, why="no victim"))
    assert broken(play) == {"I9"}


def test_overlapping_faults_add_up_their_bounds() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault()
    play.fault(is_overlap=True)
    play.now_s += 1.5
    play.generation(2, [11, 12], base=5, steps=5)
    assert broken(play) == set(), "two bounds of a second each"


def status(**values: int) -> Status:
    return Status(
        at_s=101.0,
        phase="running",
        generation=2,
        restarts=1,
        user_errors=values.get("user_errors", 0),
        node_losses=values.get("node_losses", 0),
        most_user_errors=3,
        most_node_losses=-1,
        message="",
    )


def test_a_budget_that_is_overdrawn_breaks_i11() -> None:
    play = right()
    play.records.append(status(user_errors=4, node_losses=1000))
    assert broken(play) == {"I11"}


def test_a_job_that_ends_otherwise_breaks_i11() -> None:
    assert broken(right(), phase="failed") == {"I11"}
    assert broken(right(), want=Verdict(end="failed")) == {"I11"}


def test_a_poisoned_job_that_ends_failed_is_right() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    assert broken(play, want=Verdict(end="failed"), phase="failed") == set()


def test_a_committed_step_that_is_undone_is_lost() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault()
    play.generation(2, [11, 12], base=4, steps=5)
    assert broken(play) == {"lost"}


def test_a_step_that_one_rank_had_applied_may_be_done_again_once_per_fault() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=4, unfinished=1)
    play.fault()
    play.generation(2, [11, 12], base=4, steps=5)
    found = verdict(play)
    assert found.holds, found.findings
    assert found.discarded_steps == 1
    assert broken(play, want=Verdict(most_lost_steps_per_fault=0)) == {"lost"}


def test_a_step_that_some_applied_stands_if_the_next_generation_begins_from_it() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=4, unfinished=1)
    play.fault()
    play.generation(2, [11, 12], base=5, steps=5)
    found = verdict(play)
    assert found.holds, found.findings
    assert (found.discarded_steps, found.committed_steps) == (0, 10)


def test_a_start_from_nothing_is_right_only_where_it_may_be() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault()
    play.generation(2, [13, 14], base=0, steps=5)
    assert broken(play) == {"lost"}
    assert broken(play, want=Verdict(may_start_over=True)) == set()


def test_a_state_without_replicas_may_go_back_by_some_steps_with_each_change() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=8)
    play.fault()
    play.generation(2, [11, 13], base=5, steps=8)
    play.generation(3, [11, 14], base=10, steps=8)
    assert broken(play) == {"lost"}
    assert broken(play, want=Verdict(most_steps_back=3)) == set()
    assert broken(play, want=Verdict(most_steps_back=2)) == {"lost"}


def test_a_loss_that_differs_breaks_parity() -> None:
    play = right()
    play.change(Took, {"loss": 0.3}, step=9, rank=0)
    assert broken(play) == {"parity"}


def test_a_loss_that_is_no_number_breaks_parity() -> None:
    play = right()
    play.change(Took, {"loss": float("nan")}, step=9, rank=0)
    assert broken(play) == {"parity"}


def test_faults_that_did_not_strike_break_the_schedule() -> None:
    play = right()
    play.faults = 2
    assert broken(play) == {"schedule"}
    assert broken(right(), want=Verdict(least_changes=3)) == {"schedule"}
    assert broken(right(), want=Verdict(most_changes=1)) == {"schedule"}


def test_a_run_without_steps_is_not_right() -> None:
    assert "schedule" in broken(Play())


def test_goodput_below_the_wanted_is_told() -> None:
    assert broken(right(), want=Verdict(least_goodput=0.5)) == set()
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.now_s += 10
    play.generation(2, [11, 12], base=5, steps=5)
    assert broken(play, want=Verdict(least_goodput=0.5)) == {"goodput"}


def test_processes_that_are_left_are_told() -> None:
    play = right()
    play.records.append(LeftBehind(at_s=102.0, pid=5, command="rank0"))
    assert broken(play) == {"clean"}


def test_what_judges_imports_nothing_of_what_is_judged() -> None:
    """A bug of the agent must not be able to hide itself."""
    folder = Path(chaos.__file__).parent
    for name in JUDGING:
        tree = ast.parse((folder / f"{name.replace('.', '/')}.py").read_text())
        imported = {
            name
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        inner = {name for name in imported if name.startswith("chaos.")}
        assert inner <= {f"chaos.{judging}" for judging in JUDGING}, (name, inner)
        strange = {name for name in imported if name.startswith(("elasticd", "torch", "tests"))}
        assert not strange, (name, strange)


def test_no_part_of_the_runner_imports_the_agent_or_the_rendezvous() -> None:
    folder = Path(chaos.__file__).parent
    for path in folder.rglob("*.py"):
        text = path.read_text()
        assert "elasticd_agent" not in text, path
        assert "elasticd.rendezvous" not in text, path
