"""What `why` says of faults, against what was done: a right run, and each way to be wrong."""

from typing import Any

import pytest

from chaos.history.lineage import trace
from chaos.history.records import Struck, Told, Undone
from chaos.history.recovery import commits
from chaos.plan.fault import Kind
from chaos.verdict.finding import Finding
from chaos.why.expectation import EXPECTED
from chaos.why.rule import judged_causes
from tests.unit.chaos.play import Play

KILLED: dict[str, Any] = {"node": "n1", "rank": 1, "of_generation": 1, "signal": "SIGKILL"}


def run_of(
    kind: str = "worker-kill",
    reason: str = "worker_killed",
    *,
    after_s: float = 0.0,
    overlap: dict[str, Any] | None = None,
    **said: Any,
) -> Play:
    """Process 12, rank 1 on n1, is struck; the world goes on without it and is told of."""
    play = Play()
    play.told(1, "first_world")
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault(kind, node="n1", pid=12)
    if overlap is not None:
        play.fault(is_overlap=True, **overlap)
    play.generation(2, [11], base=5, steps=1)
    play.told(2, reason, after_s=after_s, **said)
    play.generation(3, [11, 13], base=6, steps=3)
    play.told(3, "joined")
    return play


def judged(play: Play, *, share: float = 1.0, within_s: float = 2.0) -> Finding:
    history = play.history()
    found = commits(trace(history).rounds)
    (finding,) = judged_causes(history, found, share, within_s)
    return finding


def test_a_fault_that_is_named_with_its_process_is_right() -> None:
    finding = judged(run_of(**KILLED))
    assert finding.holds and finding.checked == 1
    assert "of 1 of 1 faults right" in finding.claim


@pytest.mark.parametrize(
    "wrong",
    [
        {"reason": "worker_failed"},
        {"reason": "collective_broken"},
        {"signal": "SIGTERM"},
        {"node": "n0"},
        {"rank": 0},
        {"node": "", "rank": -1},
    ],
    ids=str,
)
def test_another_cause_or_another_culprit_is_wrong(wrong: dict[str, Any]) -> None:
    finding = judged(run_of(**{**KILLED, **wrong}))
    assert finding.broken == 1
    assert finding.evidence[0].startswith("fault 0 (worker-kill of rank 1): ")


def test_a_fault_of_which_nothing_is_told_is_wrong() -> None:
    play = run_of(**KILLED)
    play.drop(Told, generation=2)
    assert not judged(play).holds


def test_a_lost_node_is_named_by_the_nodes_that_the_world_lost() -> None:
    assert judged(run_of("node-kill", "node_dead", lost=("n1",))).holds
    assert judged(run_of("node-kill", "node_lost", lost=("n1",))).holds
    assert not judged(run_of("node-kill", "node_dead", lost=("n0",))).holds
    assert not judged(run_of("node-kill", "node_left", lost=("n1",))).holds


def test_of_two_nodes_that_lost_each_other_one_is_named_and_not_both() -> None:
    def part(lost: tuple[str, ...]) -> Finding:
        play = run_of("node-part", "cut_off", lost=lost)
        play.change(Struck, {"other_node": "n0"})
        return judged(play)

    assert part(("n0",)).holds and part(("n1",)).holds
    assert not part(("n0", "n1")).holds and not part(("n2",)).holds


def test_two_nodes_that_lost_each_other_may_break_a_world_before_one_is_named() -> None:
    def part(*said: str, **first: Any) -> Finding:
        play = Play()
        play.generation(1, [11, 12], base=0, steps=5)
        play.fault("node-part", node="n1", other_node="n0")
        play.told(2, said[0], **first)
        for number, reason in enumerate(said[1:], start=3):
            play.told(number, reason, lost=("n1",))
        return judged(play)

    assert part("collective_broken", "cut_off").holds
    assert not part("collective_broken").holds, "nobody is named in the end"
    assert not part("collective_broken", "cut_off", lost=("n0",)).holds
    assert not part("node_dead", "cut_off").holds


def test_a_broken_collective_may_be_told_before_the_one_who_broke_it() -> None:
    def struck(*said: str, kind: str = "worker-kill") -> Finding:
        play = Play()
        play.generation(1, [11, 12], base=0, steps=5)
        play.fault(kind, node="n1", pid=12)
        for number, reason in enumerate(said, start=2):
            play.told(number, reason, **(KILLED if reason == "worker_killed" else {}))
        return judged(play)

    finding = struck("collective_broken", "worker_killed")
    assert finding.holds and "1 changes before that blame nobody" in finding.claim
    assert not struck("collective_broken", "joined").holds, "nobody is named in the end"
    assert not struck("collective_broken", kind="etcd-stop").holds, "nothing had happened"


def test_where_nothing_was_to_change_nobody_may_be_blamed() -> None:
    assert not judged(run_of("etcd-stop", "node_lost", lost=("n1",))).holds
    assert judged(run_of("etcd-stop", "joined")).holds


def test_a_pause_below_the_deadline_may_pass_without_a_word() -> None:
    def stopped(for_s: float) -> Finding:
        play = Play()
        play.told(1, "first_world")
        play.generation(1, [11, 12], base=0, steps=5)
        play.fault("worker-stop", node="n1", pid=12, for_s=for_s)
        play.generation(1, [11, 12], base=5, steps=5)
        return judged(play)

    assert stopped(0.2).holds and not stopped(6.0).holds


def test_two_faults_that_fall_together_are_told_as_one_of_them() -> None:
    overlap = {"kind": "node-kill", "node": "n0"}
    finding = judged(run_of(**KILLED, overlap=overlap))
    assert finding.holds and "1 of them by a fault that they fell together with" in finding.claim
    finding = judged(run_of(reason="node_dead", lost=("n0",), overlap=overlap))
    assert finding.holds
    finding = judged(run_of(reason="node_dead", lost=("n2",), overlap=overlap))
    assert finding.broken == 2


def test_a_change_that_nothing_brought_about_is_a_false_name() -> None:
    play = run_of(**KILLED)
    play.generation(4, [11], base=9, steps=1)
    play.told(4, "node_dead", lost=("n0",))
    finding = judged(play)
    assert finding.broken == 1
    assert finding.evidence == ("generation 4: node_dead, lost n0, which nothing brought about",)


def test_a_change_belongs_to_the_fault_before_it_and_not_to_the_next() -> None:
    """It is read after the next fault struck, and had begun before."""
    play = run_of(**KILLED, after_s=1.0)
    play.fault(node="n0", pid=11)
    play.generation(4, [13], base=9, steps=1)
    play.told(4, "worker_killed", node="n0", rank=0, of_generation=3, signal="SIGKILL")
    assert judged(play).holds


def test_what_is_named_too_late_is_wrong() -> None:
    assert judged(run_of(**KILLED, after_s=1.9)).holds
    finding = judged(run_of(**KILLED, after_s=2.4))
    assert not finding.holds and "after the next commit" in finding.evidence[0]


def test_while_etcd_is_away_nobody_can_read_a_name() -> None:
    """The time to tell it begins when it is back."""
    play = run_of(**KILLED, after_s=2.9, overlap={"kind": "etcd-kill"})
    assert not judged(play).holds
    play.records.append(Undone(at_s=play.now_s + 0.7, number=1))
    assert judged(play).holds
    play = run_of(**KILLED, after_s=2.9, overlap={"kind": "worker-slow"})
    play.records.append(Undone(at_s=play.now_s + 0.7, number=1))
    assert not judged(play).holds


def test_a_word_that_is_mended_counts_from_then_on() -> None:
    play = run_of(**KILLED, after_s=3.0)
    play.told(2, "collective_broken", after_s=-0.5)
    assert not judged(play).holds


def test_a_share_of_many_may_be_wrong_and_is_told_all_the_same() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=2)
    play.told(1, "first_world")
    generation, pids = 1, [11, 12]
    for number in range(50):
        play.fault(node="n1", pid=pids[1])
        generation, pids = generation + 1, [11, 100 + number]
        play.generation(generation, pids, base=generation, steps=2)
        play.told(generation, "worker_killed", node="n1" if number else "n0", rank=1,
                  of_generation=generation - 1, signal="SIGKILL")  # fmt: skip
    finding = judged(play, share=0.98)
    assert finding.holds and "of 49 of 50 faults" in finding.claim and "n0" in finding.claim
    assert not judged(play, share=0.99).holds


def test_of_a_run_in_which_nobody_looked_nothing_is_said() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault()
    assert judged_causes(play.history(), [], 1.0, 2.0) == ()


def test_for_each_kind_of_fault_it_is_said_what_is_right() -> None:
    assert set(EXPECTED) == set(Kind)
