"""A policy becomes a file that is read as the same policy."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from elasticd.autoscale.policy_file.parser import parsed
from elasticd.autoscale.policy_file.toml_text import duration_text, policy_toml
from elasticd.records.autoscale.policy import (
    DOWN,
    UP,
    Behavior,
    BudgetRule,
    DeadlineRule,
    GoodputRule,
    IdleRule,
    MetricKind,
    Policy,
    Rate,
    RateUnit,
    Select,
    TargetMetric,
    TargetRule,
)

seconds = st.one_of(
    st.integers(1, 86_400).map(float), st.integers(1_000, 86_400_000).map(lambda ms: ms / 1000)
)
shares = st.floats(0.001, 1.0)
ratios = st.floats(0.0, 4.0)
numbers = st.one_of(st.integers(1, 2**60).map(float), st.floats(1e-9, 1e12))
steps = st.integers(1, 10**12)
queries = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="\"'`$#"),
    min_size=1,
    max_size=20,
).map(lambda text: f'x{{a="{text.replace(chr(92), "")}", job_name=~"$job"}}\n[$window]')
rates = st.one_of(
    st.builds(
        Rate,
        amount=st.integers(1, 100).map(float),
        unit=st.just(RateUnit.NODES),
        period_s=seconds,
    ),
    st.builds(Rate, amount=numbers, unit=st.just(RateUnit.PERCENT), period_s=seconds),
)
behaviors = st.one_of(
    st.sampled_from([UP, DOWN]),
    st.builds(
        Behavior,
        stabilization_s=st.one_of(st.just(0.0), seconds),
        tolerance=st.none() | ratios,
        select=st.sampled_from(Select),
        rates=st.lists(rates, max_size=3).map(tuple),
    ),
)
metrics = st.builds(
    TargetMetric,
    name=st.text(st.characters(categories=("L", "N")), min_size=1, max_size=9).filter(
        lambda name: name != "price"
    ),
    query=queries,
    target=numbers,
    kind=st.sampled_from(MetricKind),
    is_per_node=st.booleans(),
    max_age_s=seconds,
).filter(lambda metric: not (metric.is_per_node and metric.kind is MetricKind.SUPPLY))
targets = st.builds(
    TargetRule,
    metrics=st.lists(metrics, min_size=1, max_size=4, unique_by=lambda each: each.name).map(tuple),
    tolerance=ratios,
    up=behaviors,
    down=behaviors,
)
budgets = st.one_of(
    st.builds(BudgetRule, steps=steps, node_hours=numbers),
    st.builds(BudgetRule, steps=steps, cost=numbers, price_query=queries),
)
deadlines = st.builds(
    DeadlineRule, steps=steps, at_unix_s=st.integers(1_700_000_000, 2_000_000_000).map(float)
)
goodputs = st.builds(GoodputRule, horizon_s=seconds, least_share=shares, probe_s=seconds)
idles = st.builds(IdleRule, after_s=seconds, data_share=shares)
policies = st.builds(
    Policy,
    min_nodes=st.sampled_from([0, 1, 3]),
    max_nodes=st.sampled_from([0, 3, 500]),
    window_s=seconds,
    cooldown_s=st.one_of(st.just(0.0), seconds),
    max_step=st.integers(0, 9),
    allow_restarts=st.booleans(),
    is_dry_run=st.booleans(),
    target=st.none() | targets,
    goodput=st.none() | goodputs,
    deadline=st.none() | deadlines,
    budget=st.none() | budgets,
    idle=idles,
)


def of_one_job(policy: Policy) -> Policy:
    """Return the policy with one number of steps in both rules, as a file must have it."""
    if policy.deadline is None or policy.budget is None:
        return policy
    return replace(policy, budget=replace(policy.budget, steps=policy.deadline.steps))


@given(policy=policies.map(of_one_job))
def test_what_is_written_is_read_as_the_same(policy: Policy) -> None:
    assert parsed(policy_toml(policy), file="policy.toml", now_unix_s=0.0) == policy


def test_what_is_as_without_being_given_is_left_out() -> None:
    text = policy_toml(Policy(cooldown_s=5400.0, goodput=GoodputRule(), set_by="me@here"))
    assert text == 'cooldown = "90m"\n\n[goodput]\n'


def test_durations_have_the_largest_unit_that_is_exact() -> None:
    found = [duration_text(each) for each in (0, 0.5, 59, 90, 300, 7200, 86_400, 90_000)]
    assert found == ["0s", "0.5s", "59s", "90s", "5m", "2h", "1d", "25h"]
