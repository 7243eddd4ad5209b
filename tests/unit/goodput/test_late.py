"""Which node all others wait for, and that noise is not taken for one."""

from collections.abc import Mapping
from statistics import median

import pytest

from elasticd.goodput.late import LATE_SHARE, LateJudgement, judged, lateness
from elasticd.records.account.late import NodeWait
from elasticd.records.ids import Generation, NodeId
from tests.unit.goodput.late_scene import Scene, heavy_tailed, loaded, quiet

A, B, C, D = (NodeId(name) for name in "abcd")


def told(wait_s: float, *, step_s: float = 0.1, spread_s: float = 0.001) -> NodeWait:
    return NodeWait(
        generation=Generation(1),
        steps=50,
        step_s=step_s,
        wait_s=wait_s,
        low_s=wait_s - spread_s,
        high_s=wait_s + spread_s,
    )


UNKNOWN = NodeWait(generation=Generation(1))


def test_node_that_is_slower_by_a_third_is_named_within_60_steps() -> None:
    """And no other one; half of the times sooner, which is what is promised."""
    after = []
    for seed in range(20):
        scene = Scene(3, quiet(seed, slow=1, since=300), seed)
        scene.run(600)
        (first, *others) = scene.named
        assert (first[1], others) == ("n1", [])
        after.append(first[0] - 300)
    assert median(after) <= 60


@pytest.mark.parametrize("nodes", [2, 5])
@pytest.mark.parametrize("kind", ["quiet", "heavy", "loaded"])
def test_no_node_is_named_in_ten_thousand_undisturbed_steps(kind: str, nodes: int) -> None:
    """Also where single steps take ten times as long, and where cores are shared."""
    made = {"quiet": quiet(7), "heavy": heavy_tailed(7), "loaded": loaded(7, nodes)}
    scene = Scene(nodes, made[kind], seed=7)
    scene.run(10_000)
    assert scene.named == []
    # A write every ten seconds at most, and a handful for the beginning.
    assert scene.writes <= nodes * (6 + (scene.now_s - 1000.0) / 10)


def test_node_that_is_well_again_is_no_longer_late() -> None:
    """It takes as long as to find that it was."""
    scene = Scene(3, quiet(3, slow=1, since=300, until=600), seed=3)
    scene.run(600)
    assert list(scene.judgement.late) == ["n1"]
    scene.run(120)
    assert list(scene.judgement.late) == []
    assert len(scene.named) == 1


def test_lateness_says_by_how_much_and_what_it_costs() -> None:
    """Of a step of 100 ms, 25 ms are waited for it by three nodes: so much faster all could be."""
    found = lateness(B, {A: told(0.03), B: told(0.005), C: told(0.03), D: told(0.03)})
    assert found is not None
    assert found.share == pytest.approx(0.25)
    assert found.ratio == pytest.approx(1 / 3)
    assert found.cost_nodes == pytest.approx(0.75)


def test_two_late_nodes_of_four_are_both_named() -> None:
    """Each is compared with the middle of the others."""
    waits = {A: told(0.03), B: told(0.003), C: told(0.03), D: told(0.003)}
    judgement = held(waits)
    assert judgement.late.keys() == {B, D}


def test_nobody_is_late_where_all_others_are_unknown() -> None:
    """And of who is unknown nothing is said."""
    assert held({A: UNKNOWN, B: told(0.003)}).late == {}
    assert lateness(A, {A: UNKNOWN, B: told(0.03)}) is None
    assert held({A: None, B: told(0.003)}).is_complete is False


def test_waits_that_overlap_name_nobody() -> None:
    """The medians differ by a fifth of a step, and so do single steps: that is a machine."""
    waits = {A: told(0.03, spread_s=0.02), B: told(0.01, spread_s=0.02), C: told(0.03)}
    assert held(waits).late == {}


def test_noise_needs_a_long_look() -> None:
    """Where the difference is not much larger than the spread, for hundreds of steps."""
    waits = {A: told(0.03, spread_s=0.008), B: told(0.01, spread_s=0.008)}
    assert held(waits, for_s=3.0).late == {}
    assert held(waits, for_s=60.0).late.keys() == {B}


def test_two_thousandths_of_a_second_are_the_machines() -> None:
    """However short the steps are."""
    waits = {A: told(0.0016, step_s=0.003, spread_s=1e-5), B: told(0.0, step_s=0.003, spread_s=0.0)}
    assert held(waits).late == {}


def test_between_late_and_well_nothing_changes() -> None:
    """Else it would be named again and again."""
    late = held({A: told(0.03), B: told(0.005)})
    assert late.late.keys() == {B}
    share = (LATE_SHARE - 0.02) * 0.1
    waits = {A: told(0.005 + share), B: told(0.005)}
    assert held(waits, late, at_s=2000.0).late.keys() == {B}
    assert held(waits).late == {}


def test_unknown_waits_leave_what_was_found() -> None:
    """A new generation has to make some steps first; who has left the world is forgotten."""
    late = held({A: told(0.03), B: told(0.005), C: told(0.03)})
    assert held({A: None, B: None, C: None}, late, at_s=2000.0).late.keys() == {B}
    assert held({A: told(0.03), C: told(0.03)}, late, at_s=2000.0).late == {}


def test_node_that_is_left_alone_is_late_no_more() -> None:
    """Nobody waits for it, and that is known at once, before it has made a step."""
    late = held({A: told(0.03), B: told(0.005), C: told(0.03)})
    alone = held({B: None}, late, at_s=2000.0)
    assert (alone.late, alone.is_complete, alone.wake_s) == ({}, True, None)


def held(
    waits: Mapping[NodeId, NodeWait | None],
    before: LateJudgement | None = None,
    *,
    at_s: float = 1000.0,
    for_s: float = 10.0,
) -> LateJudgement:
    """Judge at once, and again when that is wanted, for so long."""
    judgement = judged(before or LateJudgement(), dict(waits), at_s)
    while judgement.wake_s is not None and judgement.wake_s <= at_s + for_s:
        now_s = judgement.wake_s
        judgement = judged(judgement, dict(waits), now_s)
        assert judgement.wake_s is None or judgement.wake_s > now_s
    return judgement
