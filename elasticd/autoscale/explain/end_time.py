"""Estimates when a job will have made its steps, from the curve, with an error. Pure."""

from dataclasses import dataclass

from elasticd.autoscale.explain.curve_table import curve_points
from elasticd.autoscale.explain.quantity import FAR, clock, span
from elasticd.control.report.report import JobReport
from elasticd.records.autoscale.policy import Policy
from elasticd.records.reason import Phase

__all__ = ["EndTime", "end_sentence", "end_time", "steps_wanted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTime:
    """The expected end at the size that trains now."""

    nodes: int
    steps_left: int
    left_s: float
    """The seconds that are left; 0 if all steps are made."""
    error_s: float
    """The error in seconds: one standard deviation."""
    is_measured: bool
    """True if the size was measured; False if the fit gives the time."""


def steps_wanted(policy: Policy | None) -> int:
    """Return the steps of the whole job, from its policy; 0 if the policy does not say."""
    if policy is None:
        return 0
    if policy.deadline is not None:
        return policy.deadline.steps
    return policy.budget.steps if policy.budget is not None else 0


def end_time(report: JobReport) -> EndTime | None:
    """Return when the job ends at its present size; None if not known, or if it does not run."""
    autoscaling = report.autoscaling
    if autoscaling is None or autoscaling.curve is None or report.world is None:
        return None
    total = steps_wanted(autoscaling.policy)
    if not total or report.status.phase is not Phase.RUNNING:
        return None
    nodes = len(report.world.nodes)
    left = max(0, total - report.step)
    points = {each.nodes: each for each in curve_points(autoscaling.curve, most=nodes)}
    point = points.get(nodes)
    if point is None or point.step_s <= 0.0:
        return None
    left_s = left * point.step_s
    return EndTime(
        nodes=nodes,
        steps_left=left,
        left_s=left_s,
        error_s=left_s * point.error_share,
        is_measured=point.is_measured,
    )


def end_sentence(report: JobReport, now_unix_s: float) -> str:
    """Return a sentence about the time at which the steps will be made, and about the deadline;
    empty if that time is not known.
    """
    autoscaling = report.autoscaling
    policy = autoscaling.policy if autoscaling is not None else None
    if not steps_wanted(policy) or report.status.phase.is_final:
        return ""
    found = end_time(report)
    if found is None:
        return "the time of the end is not known yet: this size has not been measured"
    if not found.steps_left:
        return f"all {steps_wanted(policy)} steps are made"
    at_unix_s = now_unix_s + found.left_s
    how = "measured" if found.is_measured else "by the fit"
    when = clock(at_unix_s, has_day=True)
    at = when if when == FAR else f"at {when}"
    text = (
        f"the last {found.steps_left} steps end {at} ± {span(found.error_s)}, in "
        f"{span(found.left_s)} on {found.nodes} nodes ({how})"
    )
    if policy is not None and policy.deadline is not None:
        early_s = policy.deadline.at_unix_s - at_unix_s
        text += f", {span(abs(early_s))} {'before' if early_s >= 0 else 'after'} the deadline"
    return text
