"""The idle rule: MIN while nobody has work for more, and back at once."""

from dataclasses import replace

import pytest

from elasticd.autoscale.evaluation_input import Observation
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.rules.idle import propose, remembered
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import IdleRule, Policy
from tests.unit.autoscale.rules.rule_scene import seen

RULE = IdleRule(after_s=60.0, data_share=0.9)


def _told(*jobs: Observation, policy: Policy | None = None) -> tuple[Proposal, Memory]:
    memory = Memory()
    for job in jobs:
        own = policy or Policy(idle=RULE)
        memory = remembered(RULE, own, job, memory)
        proposal = propose(RULE, own, Curve(), job, memory)
    return proposal, memory


def _waits(now_s: float, nodes: int = 8) -> Observation:
    return seen(nodes, now_s=now_s, data_share=0.95)


def test_a_wait_that_lasts_leaves_the_job_with_min() -> None:
    early, _ = _told(_waits(0.0), _waits(59.0))
    assert (early.nodes, early.held) == (None, "")
    late, memory = _told(_waits(0.0), _waits(60.0))
    assert late.nodes == 1
    assert "for 95 % of its time since 60 s" in late.why
    assert memory.idle_from_nodes == 8


def test_a_pause_takes_no_node() -> None:
    """It would be given back only at the first step after the pause, which needs it."""
    paused = [seen(8, now_s=now_s, is_paused=True) for now_s in (0.0, 600.0, 1200.0)]
    proposal, memory = _told(*paused)
    assert (proposal.nodes, proposal.held, memory.idle_since_s) == (None, "", None)
    assert proposal.why == "The job is paused: no node can be given back before its next step."
    proposal, _ = _told(_waits(0.0), *(replace(each, now_s=each.now_s + 1.0) for each in paused))
    assert proposal.nodes is None


def test_a_job_that_was_idle_stays_so_in_a_pause() -> None:
    """Not even the limits, which ask for all nodes, have a word."""
    jobs = [_waits(0.0), _waits(60.0), seen(1, now_s=61.0, wanted=1, is_paused=True)]
    proposal, memory = _told(*jobs)
    assert (proposal.nodes, memory.idle_from_nodes) == (1, 8)


def test_waiting_for_data_does_so_too_and_the_policy_may_keep_more() -> None:
    jobs = [seen(8, now_s=now_s, data_share=0.95) for now_s in (0.0, 60.0)]
    proposal, _ = _told(*jobs, policy=Policy(idle=RULE, min_nodes=2))
    assert proposal.nodes == 2
    assert "waits for its data for 95 %" in proposal.why


def test_a_little_waiting_is_not_idle() -> None:
    proposal, _ = _told(*(seen(8, now_s=now_s, data_share=0.89) for now_s in (0.0, 600.0)))
    assert proposal.nodes is None


def test_when_the_data_come_again_the_job_has_its_size_back_at_once() -> None:
    proposal, _ = _told(_waits(0.0), _waits(60.0), _waits(70.0, 1), seen(1, now_s=71.0))
    assert proposal.nodes == 8
    assert "back to the 8 nodes" in proposal.why


def test_it_asks_for_that_size_until_the_job_wants_it() -> None:
    jobs = [_waits(0.0), _waits(60.0), seen(1, now_s=71.0)]
    again, memory = _told(*jobs, seen(1, now_s=72.0))
    assert (again.nodes, memory.idle_from_nodes) == (8, 8)
    quiet, memory = _told(*jobs, seen(1, now_s=72.0, wanted=8))
    assert (quiet.nodes, memory.idle_from_nodes) == (None, 0)


def test_a_wait_that_was_short_is_forgotten() -> None:
    proposal, memory = _told(_waits(0.0), seen(8, now_s=30.0), _waits(40.0), _waits(99.0))
    assert proposal.nodes is None
    assert memory.idle_since_s == 40.0


@pytest.mark.parametrize(("data_share", "wish"), [(0.3, 1), (0.2, 1), (0.15, 8), (0.0, 8)])
def test_one_node_that_waits_less_does_not_bring_eight_back_to_wait(
    data_share: float, wish: int
) -> None:
    """The data come at a rate of their own, which one node nearly uses up."""
    jobs = [seen(8, now_s=now_s, data_share=0.95) for now_s in (0.0, 60.0)]
    proposal, _ = _told(*jobs, seen(1, now_s=70.0, data_share=data_share))
    assert proposal.nodes == wish


def test_between_two_worlds_nothing_is_forgotten() -> None:
    _, memory = _told(_waits(0.0), seen(0, now_s=30.0))
    assert memory.idle_since_s == 0.0
    proposal, _ = _told(_waits(0.0), seen(0, now_s=30.0))
    assert proposal.held == HoldReason.NOT_RUNNING


def test_the_size_of_before_is_asked_for_within_the_limits_of_now() -> None:
    memory = Memory(idle_from_nodes=8)
    policy = Policy(idle=RULE, max_nodes=4)
    assert propose(RULE, policy, Curve(), seen(1), memory).nodes == 4
    assert propose(RULE, policy, Curve(), seen(1), replace(memory, idle_from_nodes=0)).nodes is None
