"""Holds: the conditions that forbid a decision about a job (HPA: ScalingActive is false)."""

from elasticd.autoscale.evaluation_input import Observation, QueryReading
from elasticd.autoscale.rules import target
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import PRICE, Policy

__all__ = ["Hold", "counted", "forbidden", "held_word", "missing_input", "unmeasured"]

Hold = tuple[HoldReason, str]
"""A word of the closed list, and a sentence for people."""


def forbidden(policy: Policy, seen: Observation) -> Hold | None:
    """Return the condition that forbids any change of the job's size now; None if there is none."""
    if not seen.is_running or seen.nodes == 0:
        return HoldReason.NOT_RUNNING, "No world trains now: the size is decided when one does."
    if seen.is_pinned:
        by = seen.pinned_by or "a user"
        return HoldReason.PINNED, (
            f"The want of {by} pins the job to {seen.wanted} nodes: nothing is decided until it "
            f"is taken back (elasticd scale {seen.job} auto)."
        )
    if not (seen.is_in_process or policy.allow_restarts or policy.is_dry_run):
        return HoldReason.RESTART_MODE, (
            "A change of size restarts this job's scripts, since it runs in restart mode: nothing "
            "is done unless the policy says allow_restarts = true."
        )
    return None


def unmeasured(policy: Policy, memory: Memory, seen: Observation) -> Hold | None:
    """Return why the present generation has no measurement yet; None if its window is whole.

    For a job that reports no steps, the window is the time since its generation was first observed.
    """
    there_s = seen.now_s - memory.generation_since_s
    if seen.has_full_window or (seen.step == 0 and there_s >= policy.window_s):
        return None
    return HoldReason.NO_WINDOW, (
        f"Generation {seen.generation} has not been measured for one whole window of "
        f"{policy.window_s:g} s yet: what is from before it says nothing of {counted(seen.nodes)}."
    )


def missing_input(policy: Policy, seen: Observation) -> Hold | None:
    """Return which metric of the policy has no number to use now; None if each has one.

    While a metric is missing, no rule makes the job smaller, not even a rule that needs no metrics:
    the missing metric might ask for more. `seen` is the input of `with_gaps`.
    """
    if policy.target is not None and (lacking := target.missing(policy.target, seen)) is not None:
        word, why = lacking
        return held_word(word), why
    if policy.budget is None or not policy.budget.price_query:
        return None
    price = seen.readings.get(PRICE, QueryReading(value=None, why=HoldReason.EMPTY))
    if price.value is not None:
        return None
    detail = f" ({price.detail})" if price.detail else ""
    return held_word(price.why), f"The price is not known{detail}."


def held_word(word: str) -> HoldReason:
    """Return the word if it is in the closed list; any other word becomes `other`."""
    return HoldReason(word) if word in HoldReason.__members__.values() else HoldReason.OTHER


def counted(nodes: int) -> str:
    """Return a number of nodes with its noun."""
    return f"{nodes} node" + ("" if nodes == 1 else "s")
