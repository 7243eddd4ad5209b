"""The HPA's algorithm on nodes: published cases, and what must hold for all of them.

The cases named with `replica_calculator_test.go` and `horizontal_test.go` give the numbers of the
tests of that name in kubernetes/kubernetes, pkg/controller/podautoscaler. A mean over pods is one
number here, `ready` is their number of ready pods, `replicas` what their object asks for.
"""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.autoscale.evaluation_input import Observation, QueryReading
from elasticd.autoscale.rules.target import NODES_LIMIT, propose
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import Behavior, MetricKind, TargetMetric, TargetRule
from elasticd.records.ids import Generation

CALCULATOR = "replica_calculator_test.go"
HORIZONTAL = "horizontal_test.go"


def seen(
    readings: Mapping[str, float | QueryReading], *, nodes: int, wanted: int | None = None
) -> Observation:
    return Observation(
        job="job",
        uid="u",
        now_s=1000.0,
        unix_s=1.7e9,
        min_nodes=1,
        max_nodes=10_000,
        nodes=nodes,
        wanted=nodes if wanted is None else wanted,
        is_running=True,
        is_in_process=True,
        generation=Generation(3),
        available=nodes,
        readings={
            name: each if isinstance(each, QueryReading) else QueryReading(value=each)
            for name, each in readings.items()
        },
    )


def metric(
    target: float,
    *,
    name: str = "queue",
    kind: MetricKind = MetricKind.LOAD,
    is_per_node: bool = False,
) -> TargetMetric:
    return TargetMetric(name=name, query="x", target=target, kind=kind, is_per_node=is_per_node)


def rule(*metrics: TargetMetric, **others: object) -> TargetRule:
    return TargetRule(metrics=metrics, **others)  # type: ignore[arg-type]


PUBLISHED = [
    # file, case, value, target, is it for each pod, ready, replicas, expected
    (CALCULATOR, "TestReplicaCalcScaleUp", 50, 30, False, 3, 3, 5),
    (CALCULATOR, "TestReplicaCalcScaleUpIgnoresFailedPods", 60, 30, False, 2, 2, 4),
    (CALCULATOR, "TestReplicaCalcScaleUpIgnoresDeletionPods", 60, 30, False, 2, 2, 4),
    (CALCULATOR, "TestReplicaCalcScaleUpCM", 20000, 15000, False, 3, 3, 4),
    (CALCULATOR, "TestReplicaCalcScaleUpCMUnreadyHotCpuNoLessScale", 30000, 15000, False, 3, 3, 6),
    (
        CALCULATOR,
        "TestReplicaCalcScaleUpCMUnreadyHotCpuScaleWouldScaleDown",
        31666,
        15000,
        False,
        3,
        3,
        7,
    ),
    (CALCULATOR, "TestReplicaCalcScaleUpCMObject", 20000, 15000, False, 3, 3, 4),
    (CALCULATOR, "TestReplicaCalcScaleUpCMPerPodObject", 20000, 5000, True, 3, 3, 4),
    (CALCULATOR, "TestReplicaCalcScaleUpCMObjectIgnoresUnreadyPods", 50000, 10000, False, 1, 3, 5),
    (CALCULATOR, "TestReplicaCalcScaleUpCMExternal", 8600, 4400, False, 1, 1, 2),
    (CALCULATOR, "TestReplicaCalcScaleUpCMExternalIgnoresUnreadyPods", 8600, 4400, False, 1, 3, 2),
    (CALCULATOR, "TestReplicaCalcScaleUpPerPodCMExternal", 8600, 2150, True, 3, 3, 4),
    (CALCULATOR, "TestReplicaCalcScaleDown", 28, 50, False, 5, 5, 3),
    (CALCULATOR, "TestReplicaCalcScaleDownCM", 12000, 20000, False, 5, 5, 3),
    (CALCULATOR, "TestReplicaCalcScaleDownPerPodCMObject", 6000, 2000, True, 5, 5, 3),
    (CALCULATOR, "TestReplicaCalcScaleDownCMObject", 12000, 20000, False, 5, 5, 3),
    (CALCULATOR, "TestReplicaCalcScaleDownCMExternal", 8600, 14334, False, 5, 5, 3),
    (CALCULATOR, "TestReplicaCalcScaleDownPerPodCMExternal", 8600, 2867, True, 5, 5, 3),
    (CALCULATOR, "TestReplicaCalcScaleDownIncludeUnreadyPods", 30, 50, False, 3, 5, 2),
    (CALCULATOR, "TestReplicaCalcScaleDownExcludeUnscheduledPods", 10, 50, False, 1, 5, 1),
    (CALCULATOR, "TestReplicaCalcScaleDownIgnoreHotCpuPods", 30, 50, False, 3, 5, 2),
    (CALCULATOR, "TestReplicaCalcTolerance", 102, 100, False, 3, 3, 3),
    (CALCULATOR, "TestReplicaCalcToleranceCM", 20666, 20000, False, 3, 3, 3),
    (CALCULATOR, "TestReplicaCalcToleranceCMObject", 20666, 20000, False, 3, 3, 3),
    (CALCULATOR, "TestReplicaCalcTolerancePerPodCMObject", 20166, 5000, True, 4, 4, 4),
    (CALCULATOR, "TestReplicaCalcToleranceCMExternal", 8600, 8888, False, 3, 3, 3),
    (CALCULATOR, "TestReplicaCalcTolerancePerPodCMExternal", 8600, 2900, True, 3, 3, 3),
    (CALCULATOR, "TestReplicaCalcSuperfluousMetrics", 587, 100, False, 4, 4, 24),
    (CALCULATOR, "TestReplicaCalcComputedToleranceAlgImplementation", 50, 56, False, 10, 10, 9),
    (HORIZONTAL, "TestScaleDownToZeroCMObject", 0, 20000, False, 5, 5, 0),
    (HORIZONTAL, "TestScaleDownToZeroCMExternal", 0, 14400, False, 5, 5, 0),
    (HORIZONTAL, "TestScaleDownCMExternal", 8600, 14400, False, 5, 5, 3),
    (HORIZONTAL, "TestScaleDownPerPodCMExternal", 8600, 3000, True, 5, 5, 3),
    (HORIZONTAL, "TestToleranceCMObject", 20050, 20000, False, 3, 3, 3),
    (HORIZONTAL, "TestToleranceCMExternal", 8600, 8666, False, 4, 4, 4),
]


@pytest.mark.parametrize(
    ("value", "target", "is_per_node", "ready", "replicas", "expected"),
    [pytest.param(*case[2:], id=f"{case[0]}:{case[1]}") for case in PUBLISHED],
)
def test_one_metric_as_the_hpa_does(
    value: float, target: float, is_per_node: bool, ready: int, replicas: int, expected: int
) -> None:
    found = seen({"queue": value}, nodes=ready, wanted=replicas)
    asked = propose(rule(metric(target, is_per_node=is_per_node)), found, Memory())
    assert asked.nodes == expected


def test_a_vertical_of_fifty_grows_by_its_ratio() -> None:
    asked = propose(rule(metric(75)), seen({"queue": 90.0}, nodes=50), Memory())
    assert asked.nodes == 60
    assert asked.why == "Queue is 90 where 75 is asked for, and 1.2 times 50 nodes make 60."


def test_name_of_a_metric_of_prometheus_keeps_its_letters() -> None:
    """Somebody copies it from the sentence."""
    asked = propose(
        rule(metric(75, name="elasticd_slots")), seen({"elasticd_slots": 90.0}, nodes=50), Memory()
    )
    assert asked.why.startswith("elasticd_slots is 90 where 75 is asked for")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(110.0, 10), (110.1, 12), (90.0, 10), (89.9, 9), (80.0, 8), (120.0, 12)],
)
def test_the_tolerance_is_ten_percent_with_its_ends(value: float, expected: int) -> None:
    assert propose(rule(metric(100)), seen({"queue": value}, nodes=10), Memory()).nodes == expected


BY_DIRECTION = "TestReplicaCalcConfigurableTolerance"
PUBLISHED_TOLERANCES = [
    # case, down, up, value, target, is it for each pod, replicas, expected
    (f"{BY_DIRECTION}/Outside of a 0% tolerance", 0.0, 0.0, 101, 100, False, 3, 4),
    (f"{BY_DIRECTION}/Within a 200% scale-up tolerance", 0.1, 2.0, 190, 100, False, 3, 3),
    (f"{BY_DIRECTION}/Outside 8% scale-up tolerance", 2.0, 0.08, 109, 100, False, 3, 4),
    (f"{BY_DIRECTION}/Within a 36% scale-down tolerance", 0.36, 0.1, 65, 100, False, 3, 3),
    (f"{BY_DIRECTION}/Outside a 34% scale-down tolerance", 0.34, 0.1, 65, 100, False, 3, 2),
    (f"{BY_DIRECTION}CM", 0.1, 0.01, 20666, 20000, False, 3, 4),
    (f"{BY_DIRECTION}CMObject", 0.1, 0.01, 20666, 20000, False, 3, 4),
    (f"{BY_DIRECTION}PerPodCMObject", 0.1, 0.01, 20208, 5000, True, 4, 5),
    (f"{BY_DIRECTION}CMExternal", 0.1, 0.01, 8900, 8800, False, 3, 4),
    (f"{BY_DIRECTION}PerPodCMExternal", 0.1, 0.01, 8600, 2800, True, 3, 4),
]


@pytest.mark.parametrize(
    ("down", "up", "value", "target", "is_per_node", "replicas", "expected"),
    [pytest.param(*case[1:], id=f"{CALCULATOR}:{case[0]}") for case in PUBLISHED_TOLERANCES],
)
def test_each_direction_has_a_tolerance_of_its_own(
    down: float,
    up: float,
    value: float,
    target: float,
    is_per_node: bool,
    replicas: int,
    expected: int,
) -> None:
    """KEP-4951: `behavior.scaleUp.tolerance` and `behavior.scaleDown.tolerance`."""
    asks = metric(target, is_per_node=is_per_node)
    own = rule(asks, up=Behavior(tolerance=up), down=Behavior(tolerance=down))
    assert propose(own, seen({"queue": value}, nodes=replicas), Memory()).nodes == expected


def test_a_float_makes_no_node() -> None:
    """10 x 1.1 is 11.000000000000002 in binary, and the ceiling of that would be 12."""
    exact = rule(metric(10), tolerance=0.0)
    assert propose(exact, seen({"queue": 11.0}, nodes=10), Memory()).nodes == 11


@pytest.mark.parametrize(
    ("value", "expected"), [(50.0, 6), (100.0, 3), (95.0, 3), (300.0, 1), (20.0, 15)]
)
def test_a_supply_below_its_target_asks_for_more(value: float, expected: int) -> None:
    throughput = rule(metric(100, name="throughput", kind=MetricKind.SUPPLY))
    assert propose(throughput, seen({"throughput": value}, nodes=3), Memory()).nodes == expected


def test_a_supply_of_nothing_is_no_ratio() -> None:
    throughput = rule(metric(100, name="throughput", kind=MetricKind.SUPPLY))
    asked = propose(throughput, seen({"throughput": 0.0}, nodes=3), Memory())
    assert (asked.nodes, asked.held) == (None, "not_a_number")


@pytest.mark.parametrize("kind", list(MetricKind))
@pytest.mark.parametrize("value", [1e300, 1e18])
def test_a_value_beyond_reason_is_no_number_to_go_by(kind: MetricKind, value: float) -> None:
    asked = propose(rule(metric(100, kind=kind)), seen({"queue": value}, nodes=3), Memory())
    assert (asked.nodes, asked.held) == (None, "not_a_number")


def test_a_supply_next_to_nothing_asks_for_no_absurd_size() -> None:
    throughput = rule(metric(100, kind=MetricKind.SUPPLY))
    asked = propose(throughput, seen({"queue": 1e-300}, nodes=3), Memory())
    assert (asked.nodes, asked.held) == (None, "not_a_number")


def test_the_largest_size_is_that_of_the_hpa() -> None:
    asked = propose(rule(metric(1)), seen({"queue": 1e14}, nodes=3), Memory())
    assert asked.nodes == NODES_LIMIT


@pytest.mark.parametrize(
    ("reading", "held"),
    [
        (QueryReading(value=None, why="unreachable", detail="No answer in 5 s."), "unreachable"),
        (QueryReading(value=None, why="many_series"), "many_series"),
        (QueryReading(value=float("nan")), "not_a_number"),
        (QueryReading(value=float("inf")), "not_a_number"),
        (QueryReading(value=-1.0), "negative"),
        (QueryReading(value=50.0, age_s=61.0), "stale"),
    ],
)
def test_without_a_number_there_is_no_proposal(reading: QueryReading, held: str) -> None:
    """replica_calculator_test.go: TestReplicaCalcEmptyMetrics; horizontal_test.go:
    TestEmptyMetrics, TestMissingMetrics."""
    asked = propose(rule(metric(100)), seen({"queue": reading}, nodes=3), Memory())
    assert (asked.nodes, asked.held, asked.may_shrink) == (None, held, False)
    assert asked.why.startswith("Queue")
    assert propose(rule(metric(100)), seen({}, nodes=3), Memory()).held == "empty"


def test_without_a_world_there_is_no_proposal() -> None:
    asked = propose(rule(metric(100)), seen({"queue": 500.0}, nodes=0, wanted=3), Memory())
    assert (asked.nodes, asked.held) == (None, "not_running")


def two(
    first: float | QueryReading, second: float | QueryReading, *, nodes: int, target: float
) -> int | None:
    both = rule(metric(target, name="a"), metric(target, name="b"))
    return propose(both, seen({"a": first, "b": second}, nodes=nodes), Memory()).nodes


GONE = QueryReading(value=None, why="empty")


@pytest.mark.parametrize(
    ("first", "second", "target", "nodes", "expected"),
    [
        pytest.param(40.0, 60.0, 30.0, 3, 6, id="the greatest of two"),
        pytest.param(50.0, 100.0, 100.0, 4, 4, id="one keeps what the other would give up"),
        pytest.param(40.0, GONE, 30.0, 3, 4, id=f"{HORIZONTAL}:TestScaleUpOneMetricEmpty"),
        pytest.param(GONE, 40.0, 30.0, 3, 4, id=f"{HORIZONTAL}:TestScaleUpOneMetricInvalid"),
        pytest.param(28.0, GONE, 50.0, 5, None, id=f"{HORIZONTAL}:TestNoScaleDownOneMetricEmpty"),
        pytest.param(GONE, 28.0, 50.0, 5, None, id=f"{HORIZONTAL}:TestNoScaleDownOneMetricInvalid"),
        pytest.param(100.0, GONE, 100.0, 5, 5, id="what is there is content"),
        pytest.param(GONE, GONE, 100.0, 5, None, id="all are missing"),
    ],
)
def test_of_several_metrics_the_greatest_counts_and_a_missing_one_lets_nothing_shrink(
    first: float | QueryReading,
    second: float | QueryReading,
    target: float,
    nodes: int,
    expected: int | None,
) -> None:
    """As it is since kubernetes#99514; before, a missing metric let the others shrink it."""
    assert two(first, second, nodes=nodes, target=target) == expected


def test_the_sentence_names_all_metrics() -> None:
    both = rule(metric(100, name="queue"), metric(10, name="lag", is_per_node=True))
    asked = propose(both, seen({"queue": 150.0, "lag": 90.0}, nodes=4), Memory())
    assert asked.why == (
        "Queue is 150 where 100 is asked for, and 1.5 times 4 nodes make 6; lag is 90 where 10 is "
        "asked for of each node, so it takes 9 nodes; the most is 9 nodes."
    )
    asked = propose(both, seen({"queue": 50.0, "lag": GONE}, nodes=4), Memory())
    assert asked.why == (
        "Queue is 50 where 100 is asked for, and 0.5 times 4 nodes make 2; lag is missing (empty); "
        "while one is missing, the others do not make the job smaller."
    )


values = st.floats(min_value=1e-3, max_value=1e6)


@given(low=values, high=values, target=values, nodes=st.integers(1, 500))
def test_more_load_never_asks_for_fewer(low: float, high: float, target: float, nodes: int) -> None:
    low, high = sorted((low, high))
    for is_per_node in (False, True):
        asks = rule(metric(target, is_per_node=is_per_node))
        fewer = propose(asks, seen({"queue": low}, nodes=nodes), Memory()).nodes
        more = propose(asks, seen({"queue": high}, nodes=nodes), Memory()).nodes
        assert fewer is not None and more is not None and fewer <= more


@given(low=values, high=values, target=values, nodes=st.integers(1, 500))
def test_more_supply_never_asks_for_more(
    low: float, high: float, target: float, nodes: int
) -> None:
    low, high = sorted((low, high))
    asks = rule(metric(target, kind=MetricKind.SUPPLY))
    more = propose(asks, seen({"queue": low}, nodes=nodes), Memory()).nodes
    fewer = propose(asks, seen({"queue": high}, nodes=nodes), Memory()).nodes
    assert fewer is not None and more is not None and fewer <= more


@given(value=values, target=values, nodes=st.integers(1, 500), kind=st.sampled_from(MetricKind))
def test_a_metric_above_its_target_never_shrinks_a_load_nor_grows_a_supply(
    value: float, target: float, nodes: int, kind: MetricKind
) -> None:
    asked = propose(rule(metric(target, kind=kind)), seen({"queue": value}, nodes=nodes), Memory())
    assert asked.nodes is not None
    wants_more = (value > target) == (kind is MetricKind.LOAD)
    assert asked.nodes >= nodes if wants_more else asked.nodes <= nodes
