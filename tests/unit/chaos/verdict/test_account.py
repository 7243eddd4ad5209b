"""Whether the account that agents kept agrees with the raw history, computed by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from chaos.history.lineage import trace
from chaos.history.records import Applied
from chaos.history.recovery import commits
from chaos.verdict.account import FILE, judged_account, seen_stalls, told_bounds, told_stalls
from chaos.verdict.finding import Finding
from chaos.why.goodput import trained_s
from tests.unit.chaos.play import STEP_S, Play

SLOTS = 2


def incident(
    generation: int, reason: str = "worker_killed", *, node: str = "n0", **spent_s: float
) -> dict[str, Any]:
    values: dict[str, Any] = {"generation": generation, "reason": reason, "node": node, "step": 1}
    return {**values, "spent_s": spent_s}


def test_the_history_tells_the_time_between_two_generations_commits() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.now_s += 2.0
    play.generation(2, [11], base=5, steps=2)
    found = seen_stalls(commits(trace(play.history()).rounds))
    assert found == {2: pytest.approx(2.0 + STEP_S)}


def test_a_rank_that_was_stopped_and_writes_its_step_down_later_holds_nobody_up() -> None:
    """It went on with its step four seconds after the others had gone on without it."""
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.now_s += 2.0
    play.generation(2, [11], base=5, steps=2)
    play.change(Applied, {"at_s": play.now_s + 4.0}, generation=1, step=5, rank=1)
    lineage = trace(play.history())
    assert seen_stalls(commits(lineage.rounds)) == {2: pytest.approx(2.0 + STEP_S)}
    found = trained_s(commits(lineage.rounds))
    assert found == pytest.approx(4 * STEP_S * 2 + STEP_S)


def test_a_rank_that_waited_in_commit_for_one_that_was_cut_off_stood_still() -> None:
    """Both had applied the step; the one that went on wrote it down as it was called away."""
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    called_s = play.now_s + 0.01
    play.now_s += 2.0
    late: dict[str, object] = {"at_s": play.now_s - 0.01, "called_s": called_s, "is_late": True}
    play.change(Applied, late, generation=1, step=5, rank=0)
    play.generation(2, [11], base=5, steps=2)
    lineage = trace(play.history())
    found = commits(lineage.rounds)
    assert seen_stalls(found) == {2: pytest.approx(play.now_s - STEP_S + 0.01 - called_s)}
    assert trained_s(found) == pytest.approx(4 * STEP_S * 2 + STEP_S)


def test_of_a_fault_the_node_counts_that_lost_nothing() -> None:
    """The other one tells of its survivor alone; what came before a commit is never training."""
    told = [
        incident(1, "first_world", start=9.0),
        incident(2, recover=1.0, notice=0.5, train=7.0),
        incident(2, node="n1", recover=2.0, notice=1.0, start=50.0),
    ]
    assert told_stalls(told, SLOTS, [2], {}) == {2: 1.5}


def test_what_a_node_told_again_counts_once_with_its_last_report() -> None:
    """A change is told of when its workers run, and once more with their first commits."""
    told = [
        incident(2, recover=1.0),
        incident(2, node="n1", recover=1.4),
        incident(2, recover=3.0, notice=1.0),
    ]
    assert told_stalls(told, SLOTS, [2], {}) == {2: 2.0}


def test_of_a_join_the_node_counts_that_gained_nothing() -> None:
    told = [
        incident(2, "joined", resize=0.4),
        incident(2, "joined", node="n1", resize=0.2, recover=9.0),
    ]
    assert told_stalls(told, SLOTS, [2], {}) == {2: 0.2}


def test_a_node_that_joined_with_one_slot_and_then_the_other_tells_of_neither_change() -> None:
    """Its slots were starting until they trained: it stood still for next to nothing."""
    told = [
        incident(2, "joined", resize=0.4),
        incident(2, "joined", node="n1", start=8.0, resize=0.02),
        incident(3, "joined", resize=0.6),
        incident(3, "joined", node="n1", start=3.0, resize=0.5),
    ]
    trained = {1: {"n0": 2}, 2: {"n0": 2, "n1": 1}, 3: {"n0": 2, "n1": 2}}
    assert told_stalls(told, SLOTS, [2, 3], trained) == {2: 0.2, 3: 0.3}


def test_what_a_generation_without_a_step_cost_counts_with_the_next() -> None:
    told = [incident(2, notice=1.0), incident(3, recover=2.0), incident(4, recover=4.0)]
    assert told_stalls(told, SLOTS, [3, 4], {}) == {3: 1.5, 4: 2.0}
    quiet = incident(3, node="n1", recover=2.8)
    assert told_stalls([*told, quiet], SLOTS, [3, 4], {})[3] == 1.5, (
        "it told of both with the second"
    )


def test_of_a_join_that_came_to_nothing_the_one_that_joined_tells_of_itself_alone() -> None:
    told = [
        {**incident(2, "joined", recover=9.0), "nodes": 2},
        incident(3, "node_lost", recover=1.0),
        incident(3, "node_lost", node="n1", recover=1.2),
    ]
    assert told_stalls(told, SLOTS, [3], {}) == {3: 0.6}
    assert told_stalls(told[:1], SLOTS, [2], {}) == {}
    alone = {**incident(2, "joined", recover=9.0), "nodes": 1}
    assert told_stalls([alone], SLOTS, [2], {}) == {2: 4.5}


def test_of_a_leave_without_a_step_the_one_that_stayed_tells_though_another_was_struck_then() -> (
    None
):
    """Its worker was killed before the world without the node that left had made a step."""
    told = [
        {**incident(2, "node_left", resize=0.4), "nodes": 2, "lost": ["n2"]},
        incident(3, recover=0.2),
    ]
    assert told_stalls(told, SLOTS, [3], {}) == {3: pytest.approx(0.3)}


def test_of_a_join_after_a_loss_without_a_step_the_one_that_stayed_tells() -> None:
    """The one that joins tells of all the time since it was struck, in which another trained."""
    told = [
        incident(3, node="n2", recover=0.2),
        incident(4, "joined", node="n0", recover=1.6),
        incident(4, "joined", node="n2", resize=0.2),
    ]
    trained = {2: {"n1": 2, "n2": 2}, 3: {"n2": 2}, 4: {"n0": 2, "n2": 2}}
    assert told_stalls(told, SLOTS, [4], trained) == {4: pytest.approx(0.2)}


def test_of_a_join_into_a_world_that_nobody_entered_the_one_that_stayed_tells() -> None:
    """Another was killed while that world formed: the next one shows who was there before."""
    told = [
        incident(3, "joined", node="n0", recover=1.4),
        incident(3, "joined", node="n2", resize=0.4),
        incident(4, node="n2", recover=0.2),
        incident(4, node="n0", recover=0.4),
    ]
    trained = {2: {"n1": 2, "n2": 2}, 4: {"n0": 2, "n2": 2}}
    assert told_stalls(told, SLOTS, [4], trained) == {4: pytest.approx(0.3)}


def test_who_comes_back_when_another_is_lost_tells_of_neither() -> None:
    """It was away since the change before, while the one that stayed trained on."""
    told = [
        incident(3, "node_dead", node="n1", notice=0.2, recover=2.4),
        incident(3, "node_dead", node="n0", recover=1.4),
    ]
    trained = {2: {"n0": 2, "n2": 2}, 3: {"n0": 2, "n1": 2}}
    assert told_stalls(told, SLOTS, [3], trained) == {3: pytest.approx(0.7)}


def test_a_node_that_left_and_came_back_in_one_change_tells_of_itself_alone() -> None:
    """The job waited for it, as it needs them all; it was away for most of that."""
    told = [
        {**incident(2, "drained", wait=20.0), "lost": ["n1"]},
        {**incident(2, "drained", node="n1", wait=8.0), "lost": ["n1"]},
    ]
    trained = {1: {"n0": 2, "n1": 2}, 2: {"n0": 2, "n1": 2}}
    assert told_stalls(told, SLOTS, [2], trained) == {2: 10.0}


def test_where_every_node_lost_a_slot_each_tells_of_those_that_it_has_left() -> None:
    """A slot that was lost tells with the generation in which it is back."""
    told = [
        incident(2, redone=0.2, notice=3.8),
        incident(3, recover=2.2),
        incident(3, node="n1", recover=2.0),
    ]
    whole, halves = {"n0": 2, "n1": 2}, {"n0": 1, "n1": 1}
    assert told_stalls(told, SLOTS, [3], {2: whole, 3: halves}) == {3: pytest.approx(2.0 + 2.2)}
    one_is_whole = {"n0": 2, "n1": 1}
    assert told_stalls(told[1:], SLOTS, [3], {3: one_is_whole}) == {3: pytest.approx(1.1)}


def test_where_no_node_kept_its_slots_what_a_node_tells_bounds_the_time() -> None:
    """As in a run that began anew: a worker was killed, and the survivors' state was gone with it.

    The one slot that is left told of its 2.81 s with the last generation, the other one of the time
    until it heard of the one before, which nobody entered.
    """
    told = [
        incident(2, node="n1", redone=0.1, recover=0.87),
        incident(2, node="n0", redone=0.22, recover=1.71),
        incident(3, node="n1", redone=0.1, recover=2.72),
    ]
    trained = {1: {"n0": 2, "n1": 2}, 3: {"n1": 1}}
    least_s, most_s = told_bounds(told, [3], trained)[3]
    assert [least_s, most_s] == pytest.approx([3.79 / 2, 3.79])
    assert least_s < 2.81 < most_s


def test_where_every_node_gains_slots_the_time_is_that_of_those_that_trained() -> None:
    """The other slot of n1 was away before, and tells of that too."""
    told = [
        incident(4, "joined", node="n1", resize=0.84, recover=3.43),
        incident(4, "joined", node="n0", recover=6.94),
    ]
    trained = {3: {"n1": 1}, 4: {"n0": 2, "n1": 2}}
    assert told_bounds(told, [4], trained) == {4: (0.42, 0.84)}


def test_where_the_sum_can_be_divided_there_are_no_bounds() -> None:
    """Some node kept its slots, or each generation was entered: nothing is left open."""
    lost = [incident(2, recover=1.0), incident(3, recover=2.0)]
    whole, halves = {"n0": 2, "n1": 2}, {"n0": 1, "n1": 1}
    assert told_bounds(lost, [3], {1: whole, 3: {"n0": 2}}) == {}
    assert told_bounds(lost, [3], {1: whole, 2: whole, 3: halves}) == {}
    assert told_bounds(lost, [3], {}) == {}
    joined = [incident(2, "joined", resize=1.0)]
    assert told_bounds(joined, [2], {1: {"n0": 2}, 2: whole}) == {}


@pytest.mark.parametrize(
    ("recover_s", "holds"), [(1.9, False), (2.4, True), (4.2, True), (4.6, False)]
)
def test_what_is_seen_has_to_lie_between_the_bounds(
    tmp_path: Path, recover_s: float, holds: bool
) -> None:
    """It stood still for 2.1 s, and one slot of the node is left: as much to twice as much."""
    path = tmp_path / FILE
    path.parent.mkdir(parents=True)
    lines = [incident(2, recover=0.2), incident(3, recover=recover_s - 0.2)]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    play = Play(slots=SLOTS)
    play.generation(1, [11, 12, 13, 14], base=0, steps=50)
    play.now_s += 2.0
    play.slots = 1
    play.generation(3, [11], base=50, steps=50)
    lineage = trace(play.history())
    (finding,) = judged_account(tmp_path, lineage, commits(lineage.rounds), SLOTS, 0.01)
    assert finding.holds is holds, finding


def judged_run(folder: Path, told: dict[str, Any], within: float) -> tuple[Finding, ...]:
    """Of two nodes one is lost, and the other stands still for 2.1 s."""
    path = folder / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told) + "\n")
    play = Play(slots=SLOTS)
    play.generation(1, [11, 12, 13, 14], base=0, steps=50)
    play.now_s += 2.0
    play.generation(2, [11, 12], base=50, steps=50)
    lineage = trace(play.history())
    return judged_account(folder, lineage, commits(lineage.rounds), SLOTS, within)


def test_an_account_within_a_point_of_the_history_holds(tmp_path: Path) -> None:
    """12 s in all: 0.12 s are a point."""
    (finding,) = judged_run(tmp_path, incident(2, notice=4.0), 0.01)
    assert finding.holds and finding.checked == 1


def test_a_late_node_is_no_change(tmp_path: Path) -> None:
    """It stands in the same file, and the account counts the waiting for it elsewhere."""
    path = tmp_path / FILE
    path.parent.mkdir(parents=True)
    late = {"late": {"node": "n1", "ratio": 0.5, "since_unix_s": 1.0}, "at_unix_s": 1.0}
    path.with_name("incidents.jsonl").write_text(json.dumps(late) + "\n")
    play = Play(slots=SLOTS)
    play.generation(1, [11, 12, 13, 14], base=0, steps=50)
    lineage = trace(play.history())
    assert judged_account(tmp_path, lineage, commits(lineage.rounds), SLOTS, 0.01) == ()
    with path.open("a") as file:
        file.write(json.dumps(incident(2, notice=4.0)) + "\n")
    play.now_s += 2.0
    play.generation(2, [11, 12], base=50, steps=50)
    lineage = trace(play.history())
    (finding,) = judged_account(tmp_path, lineage, commits(lineage.rounds), SLOTS, 0.01)
    assert finding.holds and finding.checked == 1


def test_a_join_before_the_first_commit_is_no_change(tmp_path: Path) -> None:
    """The first world has made no step when a node joins: nothing stood still yet."""
    path = tmp_path / FILE
    path.parent.mkdir(parents=True)
    told = [
        {**incident(2, node="a", resize=1.0), "reason": "joined"},
        {**incident(2, node="b", start=4.0), "reason": "joined"},
        incident(3, node="a", notice=4.2),
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in told))
    play = Play(slots=SLOTS)
    play.generation(2, [11, 12, 13, 14], base=0, steps=50)
    play.now_s += 2.0
    play.generation(3, [11, 12], base=50, steps=50)
    lineage = trace(play.history())
    (finding,) = judged_account(tmp_path, lineage, commits(lineage.rounds), SLOTS, 0.01)
    assert finding.holds and finding.checked == 1, finding.evidence


def test_each_change_may_be_off_by_some_milliseconds(tmp_path: Path) -> None:
    """In a short run with many changes they are more than a point."""
    (finding,) = judged_run(tmp_path, incident(2, notice=4.12), 1e-6)
    assert finding.holds


def test_an_account_that_is_further_off_is_broken(tmp_path: Path) -> None:
    (finding,) = judged_run(tmp_path, incident(2, notice=3.8), 0.01)
    assert not finding.holds
    assert finding.evidence[0].startswith("1.90 s told, 2.10 s seen in 11.9 s")
    (finding,) = judged_run(tmp_path, incident(2, notice=3.8), 0.0)
    assert finding.holds, "it is told, and not judged"


def test_of_slots_that_are_left_the_account_is_judged_too(tmp_path: Path) -> None:
    """Each of two nodes lost one of its two workers."""
    path = tmp_path / FILE
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(incident(2, notice=2.1)) + "\n")
    play = Play(slots=SLOTS)
    play.generation(1, [11, 12, 13, 14], base=0, steps=50)
    play.now_s += 2.0
    play.slots = 1
    play.generation(2, [11, 13], base=50, steps=50)
    lineage = trace(play.history())
    (finding,) = judged_account(tmp_path, lineage, commits(lineage.rounds), SLOTS, 0.01)
    assert finding.holds, finding.evidence


def test_of_restart_mode_and_of_no_file_nothing_is_said(tmp_path: Path) -> None:
    told = {**incident(2, recover=9.0), "step": None}
    assert judged_run(tmp_path, told, 0.01) == ()
    (tmp_path / FILE).unlink()
    lineage = trace(Play().history())
    assert judged_account(tmp_path, lineage, (), SLOTS, 0.01) == ()
