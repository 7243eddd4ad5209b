"""A policy against the job that it is set for."""

import dataclasses

import pytest

from elasticd.autoscale.policy_file.job_check import checked, rules_by_steps
from elasticd.errors import Refused
from elasticd.records.autoscale.policy import (
    BudgetRule,
    DeadlineRule,
    GoodputRule,
    IdleRule,
    Policy,
)
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec, JobStatus
from elasticd.records.reason import Phase

NOW_S = 1_795_000_000.0
SPEC = JobSpec(
    name=JobName("gpt"),
    uid="u",
    entry_kind=EntryKind.SCRIPT,
    entry="t.py",
    min_nodes=2,
    max_nodes=8,
)


def check(
    policy: Policy,
    spec: JobSpec = SPEC,
    status: JobStatus | None = None,
    *,
    reports_steps: bool | None = True,
) -> None:
    checked(policy, spec, status, reports_steps=reports_steps, now_unix_s=NOW_S)


@pytest.mark.parametrize(
    "policy",
    [
        Policy(idle=IdleRule()),
        Policy(goodput=GoodputRule(), min_nodes=2, max_nodes=8),
        Policy(goodput=GoodputRule(), min_nodes=3, max_nodes=3),
        Policy(deadline=DeadlineRule(steps=9, at_unix_s=NOW_S + 1)),
    ],
)
def test_a_policy_that_fits_is_taken(policy: Policy) -> None:
    check(policy)
    check(policy, status=JobStatus(phase=Phase.RUNNING), reports_steps=None)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (Policy(min_nodes=1), "min_nodes = 1 is outside of what job gpt may have"),
        (Policy(min_nodes=9), "min_nodes = 9 is outside"),
        (Policy(max_nodes=9), r"max_nodes = 9 is outside .*the job runs on 2:8 nodes"),
        (Policy(max_nodes=1), "max_nodes = 1 is outside"),
        (
            Policy(deadline=DeadlineRule(steps=9, at_unix_s=NOW_S - 600)),
            "The deadline of the policy was 10 minutes ago by this machine's clock",
        ),
    ],
)
def test_a_policy_that_contradicts_the_job_is_refused(policy: Policy, says: str) -> None:
    with pytest.raises(Refused, match=says):
        check(policy)


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        (Policy(goodput=GoodputRule()), "goodput"),
        (Policy(deadline=DeadlineRule(steps=9, at_unix_s=NOW_S + 1)), "deadline"),
        (Policy(budget=BudgetRule(steps=9, node_hours=1)), "budget"),
    ],
)
def test_a_rule_that_needs_steps_is_refused_for_a_job_that_reports_none(
    policy: Policy, rule: str
) -> None:
    assert rules_by_steps(policy) == (rule,)
    with pytest.raises(Refused, match=rf"\[{rule}\] needs the job's steps, and job gpt reports"):
        check(policy, reports_steps=False)
    check(Policy(idle=IdleRule()), reports_steps=False)


def test_a_job_of_one_size_has_nothing_to_size() -> None:
    with pytest.raises(Refused, match=r"runs on exactly 8 nodes.*--nnodes 1:4"):
        check(Policy(idle=IdleRule()), dataclasses.replace(SPEC, min_nodes=8))


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase.is_final])
def test_a_job_that_is_over_takes_no_policy(phase: Phase) -> None:
    with pytest.raises(Refused, match=rf"Job gpt is over \({phase}\)"):
        check(Policy(idle=IdleRule()), status=JobStatus(phase=phase))
