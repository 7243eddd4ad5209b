"""Whoever leads next decides the same from the records, at whatever moment the last one died."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.autoscale.decide import decide
from elasticd.autoscale.evaluation_input import MeasuredWindow, Observation, QueryReading
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory, shifted
from elasticd.records.autoscale.policy import (
    Behavior,
    GoodputRule,
    IdleRule,
    MetricKind,
    Policy,
    TargetMetric,
    TargetRule,
)
from elasticd.records.codec import decode, encode
from elasticd.records.ids import Generation

POLICY = Policy(
    target=TargetRule(
        metrics=(
            TargetMetric(name="queue", query="q", target=8.0, kind=MetricKind.LOAD),
            TargetMetric(name="rate", query="r", target=8.0, kind=MetricKind.SUPPLY),
        ),
        down=Behavior(stabilization_s=45.0),
    ),
    goodput=GoodputRule(probe_s=30.0),
    idle=IdleRule(after_s=30.0),
    window_s=30.0,
    cooldown_s=15.0,
    set_at_unix_s=1.0,
)

readings = st.one_of(
    st.floats(0.5, 64.0).map(lambda value: QueryReading(value=value)),
    st.sampled_from((HoldReason.STALE, HoldReason.UNREACHABLE)).map(
        lambda why: QueryReading(value=None, why=why)
    ),
)


@st.composite
def _moments(draw: st.DrawFn) -> list[tuple[Observation, bool]]:
    """Draw evaluations with whether the leader died just before; times are exact in binary."""
    found = []
    now_s, generation, nodes, step = 1024.0, 1, 4, 0
    for _ in range(draw(st.integers(1, 12))):
        now_s += draw(st.integers(1, 60)) * 0.5
        step += draw(st.integers(0, 200))
        if draw(st.integers(0, 3)) == 0:
            generation, nodes = generation + 1, draw(st.integers(0, 8))
        seconds = draw(st.sampled_from((30.0, 45.0)))
        window = MeasuredWindow(
            generation=Generation(generation),
            nodes=max(1, nodes),
            steps=draw(st.integers(10, 400)),
            seconds=seconds,
        )
        seen = Observation(
            job="digits",
            uid="u1",
            now_s=now_s,
            unix_s=5000.0 + now_s,
            min_nodes=1,
            max_nodes=8,
            nodes=nodes,
            wanted=draw(st.integers(1, 8)),
            is_running=nodes > 0,
            is_in_process=True,
            generation=Generation(generation),
            available=draw(st.integers(nodes, 8)),
            is_pinned=draw(st.integers(0, 9)) == 0,
            step=step,
            is_paused=draw(st.booleans()),
            windows=(window,) if draw(st.booleans()) else (),
            has_full_window=draw(st.booleans()),
            change_cost_s=(1.5,) if draw(st.booleans()) else (),
            readings={"queue": draw(readings), "rate": draw(readings)},
        )
        found.append((seen, draw(st.booleans())))
    return found


@given(moments=_moments(), base_s=st.integers(-2000, 100_000))
@settings(max_examples=150, deadline=None)
def test_next_leader_decides_the_same(moments: list[tuple[Observation, bool]], base_s: int) -> None:
    """One leader that lives, and one that dies before any of the evaluations, agree on all."""
    memory, curve, opened = Memory(), Curve(), None
    other_memory, other_curve, other_opened = Memory(), Curve(), None
    clock_s = 0.0
    for seen, is_killed in moments:
        if is_killed:
            # It was killed at any moment after it wrote; its successor's clock is another one.
            clock_s = float(base_s) - clock_s / 2.0
            read = decode(Memory, encode(other_memory))
            other_curve = decode(Curve, encode(other_curve))
            # As if no time went by: at the moment of the write both clocks are the same moment.
            other_memory = shifted(read, memory.now_s + clock_s)
            if other_opened is not None:
                other_opened = decode(Decision, encode(other_opened))
        found = decide(POLICY, curve, memory, opened, seen)
        other = decide(
            POLICY,
            other_curve,
            other_memory,
            other_opened,
            replace(seen, now_s=seen.now_s + clock_s),
        )
        assert other.decision == found.decision
        assert other.closed == found.closed
        assert (other.wanted, other.held) == (found.wanted, found.held)
        assert other.curve == found.curve
        assert shifted(other.memory, seen.now_s) == found.memory
        memory, curve = found.memory, found.curve
        other_memory, other_curve = other.memory, other.curve
        for decision in (found.closed, found.decision):
            if decision is not None:
                opened = decision if decision.number == memory.open_decision else None
        other_opened = opened
