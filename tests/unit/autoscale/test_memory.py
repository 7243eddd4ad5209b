"""The autoscaler's memory: on another process's clock, and since when each metric is there."""

from dataclasses import replace

from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.outcome.recall import recalled, with_gaps
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory, Proposed, Resized, shifted
from elasticd.records.autoscale.policy import MetricKind, Policy, TargetMetric, TargetRule
from elasticd.records.codec import decode, encode
from tests.unit.autoscale.seen_scene import SEEN


def test_memory_on_another_clock_is_as_old_as_when_it_was_written() -> None:
    """No time has gone by in between, whatever both clocks read."""
    written = Memory(
        uid="u1",
        now_s=1000.0,
        proposed=(Proposed(at_s=990.0, nodes=3),),
        resized=(Resized(at_s=980.0, delta=1),),
        held="stale",
        held_since_s=999.0,
        whole_since_s={"queue": 900.0},
    )
    memory = shifted(decode(Memory, encode(written)), 50.0)
    assert memory.now_s == 50.0
    assert memory.proposed == (Proposed(at_s=40.0, nodes=3),)
    assert memory.resized == (Resized(at_s=30.0, delta=1),)
    assert memory.held_since_s == 49.0
    assert memory.whole_since_s == {"queue": -50.0}
    assert memory.idle_since_s is None


def test_after_a_gap_the_whole_range_of_a_query_comes_first() -> None:
    """A rate over ten minutes is low for ten minutes after an outage, whatever the window is."""
    query = 'sum(rate(requests_total{job_name="$job"}[10m]))'
    metric = TargetMetric(name="queue", query=query, target=10.0, kind=MetricKind.LOAD)
    policy = Policy(target=TargetRule(metrics=(metric,)), window_s=60.0)
    long_ago = Memory(uid="u1", generation=SEEN.generation, generation_since_s=-10_000.0)
    there = replace(SEEN, readings={"queue": QueryReading(value=1.0)})
    memory = recalled(policy, long_ago, there)

    def why(later_s: float) -> str:
        return (
            with_gaps(policy, memory, replace(there, now_s=SEEN.now_s + later_s))
            .readings["queue"]
            .why
        )

    assert [why(later_s) for later_s in (0.0, 61.0, 599.0)] == [HoldReason.GAP] * 3
    assert why(600.0) == ""
