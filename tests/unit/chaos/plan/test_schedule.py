"""The same seed gives the same faults, and a quota is kept to the number."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

import chaos
from chaos.plan.fault import TRAITS, After, Kind
from chaos.plan.scenario import load, parse
from chaos.plan.schedule import draw
from chaos.plan.soak import SHARES, quota, soak
from chaos.runner import REST_STEPS
from chaos.why.expectation import EXPECTED
from elasticd.records.failure import SLOT_LIMIT
from elasticd.rendezvous.slot_failures import STEADY_STEPS

PINNED = [(1, 0, 0.017, ""), (1, 0, 0.333, ""), (0, 0, 0.146, "")]
SCENARIOS = sorted((Path(chaos.__file__).parent / "scenarios").glob("*.toml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_scenario_of_ours_can_be_read_and_is_reproducible(path: Path) -> None:
    scenario = load(path)
    assert scenario.about, "says what it does"
    assert path.read_text().startswith("# "), "says which faults of the catalogue it covers"
    assert draw(scenario, 3) == draw(scenario, 3)
    assert draw(scenario, 3) or scenario.job.poison_at_step


def test_another_seed_gives_another_schedule() -> None:
    scenario = soak(50, has_network=False)
    assert draw(scenario, 1) != draw(scenario, 2)


def test_a_schedule_is_the_same_in_every_version() -> None:
    """A seed in an old report must still mean the same faults."""
    scenario = parse({"random": {"quota": {"worker-kill": 3}}}, name="pinned")
    found = [
        (fault.node, fault.worker, fault.wait_s, fault.point.value) for fault in draw(scenario, 7)
    ]
    assert found == PINNED


@pytest.mark.parametrize("faults", [1, 7, 100, 1000])
def test_a_quota_is_kept(faults: int) -> None:
    wanted = quota(faults, SHARES)
    assert sum(wanted.values()) == faults
    scenario = soak(faults, has_network=False)
    found = Counter(fault.kind.value for fault in draw(scenario, 5))
    assert found == {kind: count for kind, count in wanted.items() if count}


def test_shares_add_up_to_the_whole() -> None:
    assert sum(SHARES.values()) == pytest.approx(1.0)
    scenario = soak(1000, has_network=True)
    assert sum(scenario.random.quota.values()) == 1000
    assert scenario.random.quota["node-cut"] > 0


def test_overlaps_are_declared_and_never_three_in_a_row() -> None:
    schedule = draw(soak(1000, has_network=False), 1)
    overlaps = [fault.is_overlap for fault in schedule]
    assert not overlaps[0]
    assert 50 < sum(overlaps) < 150
    assert not any(one and two for one, two in pairwise(overlaps))
    assert all(0.02 <= fault.wait_s <= 0.1 for fault in schedule if fault.is_overlap)


@pytest.mark.parametrize("seed", range(40, 45))
def test_no_exception_overlaps_another(seed: int) -> None:
    """The same one twice without a step between is what a job ends for."""
    raised = Kind.WORKER_RAISE
    schedule = draw(soak(1000, has_network=True), seed)
    pairs = [two for one, two in pairwise(schedule) if one.kind is two.kind is raised]
    assert pairs and not any(fault.is_overlap for fault in pairs)


@pytest.mark.parametrize("seed", range(40, 45))
def test_no_slot_is_struck_so_often_without_a_rest_that_it_is_given_up(seed: int) -> None:
    """Each fault between two rests may strike the same one."""
    in_a_row, most = 0, 0
    for fault in draw(soak(1000, has_network=True), seed):
        in_a_row = 1 if fault.after is After.RESTED else in_a_row + 1
        most = max(most, in_a_row)
    assert 1 < most < SLOT_LIMIT
    assert REST_STEPS >= STEADY_STEPS


def test_a_pace_waits_for_nothing() -> None:
    table = {"random": {"every_s": 5, "quota": {"worker-kill": 4}}}
    schedule = draw(parse(table, name="pace"), 1)
    assert [fault.wait_s for fault in schedule[1:]] == [5.0] * 3
    assert all(fault.after is After.PREVIOUS for fault in schedule[1:])


def test_what_a_scenario_says_is_not_drawn() -> None:
    table = {"fault": [{"kind": "node-kill", "node": 1, "wait_s": 0.25, "for_s": 9, "times": 3}]}
    for fault in draw(parse(table, name="fixed"), 4):
        assert (fault.node, fault.wait_s, fault.for_s) == (1, 0.25, 9.0)


def test_an_overlap_is_repeated_with_the_fault_it_belongs_to() -> None:
    table = {
        "fault": [
            {"kind": "worker-kill", "times": 2},
            {"kind": "agent-kill", "after": "previous"},
        ]
    }
    kinds = [fault.kind.value for fault in draw(parse(table, name="pairs"), 1)]
    assert kinds == ["worker-kill", "agent-kill"] * 2


def test_every_kind_has_its_traits() -> None:
    assert set(TRAITS) == set(Kind)


def test_every_kind_says_what_why_must_say_of_it() -> None:
    assert set(EXPECTED) == set(Kind)
