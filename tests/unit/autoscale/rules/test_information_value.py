"""Before a job settles, a size is tried of which the trial tells more than it costs."""

from dataclasses import replace

from elasticd.autoscale.curve.cost import with_change_cost
from elasticd.autoscale.curve.size import refused
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.rules.goodput import propose
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import GoodputRule, Policy
from tests.unit.autoscale.curve.curve_scene import measured
from tests.unit.autoscale.rules.rule_scene import seen

RULE = GoodputRule()
SMALL_CLIFF = {2: 1.0 / 2.37, 3: 1.0 / 1.84, 4: 1.0 / 2.43}
"""Behind it each node adds what it added before: eight nodes make twice the steps of two."""


def _propose(curve: Curve, nodes: int, high: int) -> Proposal:
    return propose(RULE, Policy(goodput=RULE), curve, seen(nodes, high=high), Memory())


def test_behind_a_small_cliff_with_growth_in_proportion_the_largest_size_is_tried() -> None:
    proposal = _propose(measured(SMALL_CLIFF, windows=2), 2, 8)
    assert proposal.nodes is not None and proposal.nodes >= 7
    assert proposal.is_probe
    assert "too little is known to settle" in proposal.why
    assert proposal.promised_steps_per_s > 1.5 * proposal.was_steps_per_s


def test_where_there_are_no_nodes_behind_a_cliff_that_would_be_better_nothing_is_tried() -> None:
    assert _propose(measured(SMALL_CLIFF, windows=2), 2, 4).nodes == 2


def test_size_that_was_taken_back_is_not_tried_for_what_it_tells() -> None:
    curve = measured(SMALL_CLIFF, windows=2)
    for nodes in (5, 6, 7, 8):
        curve = refused(curve, nodes)
    assert _propose(curve, 2, 8).nodes == 2


def test_each_turn_asks_for_more_to_be_told() -> None:
    """Eight nodes may be a little better than three, and the job has turned once, or twice."""
    curve = measured({3: 1.0 / 3.0, 4: 1.0 / 2.6, 6: 1.0 / 3.6}, windows=2)
    assert _propose(replace(curve, way=-1, turns=1), 3, 8).nodes == 8
    assert _propose(replace(curve, way=-1, turns=2), 3, 8).nodes == 3


def test_job_whose_sizes_lie_on_one_smooth_curve_settles() -> None:
    curve = measured({nodes: 0.01 + 1.0 / nodes for nodes in (2, 4, 8, 16)}, windows=4)
    assert _propose(curve, 16, 16).nodes == 16


def test_nothing_is_tried_for_what_it_tells_where_a_change_is_dear() -> None:
    """What a change of four minutes costs is more than the trial of any size may cost."""
    curve = with_change_cost(measured(SMALL_CLIFF, windows=2), [240.0])
    assert _propose(curve, 2, 8).nodes == 2


def test_max_of_a_million_is_looked_at_in_few_steps() -> None:
    """People write it for all that there are."""
    proposal = _propose(measured(SMALL_CLIFF, windows=2), 2, 10**6)
    assert proposal.nodes is not None and 2 <= proposal.nodes <= 16
