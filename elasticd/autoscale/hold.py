"""Why nothing is done: the closed list of words, and what forbids any decision about a job.

A word is counted (`elasticd_autoscaler_held_total`) and remembered when it changes, so that a
fault that lasts an hour is told once. The words of `Reading.why`, which say what a query lacks,
belong to the list as well.
"""

from enum import StrEnum

from elasticd.autoscale.seen import Seen
from elasticd.records.autoscale.policy import Policy

__all__ = ["READING_WORDS", "Hold", "forbidden"]

READING_WORDS = (
    "empty",
    "stale",
    "not_a_number",
    "many_series",
    "negative",
    "unreachable",
    "refused",
    "warning",
)
"""Why a query gave no number (`Reading.why`)."""


class Hold(StrEnum):
    """Why the size stays as it is, where no query is to blame."""

    NOT_RUNNING = "not_running"
    """No world trains: the job starts, waits for nodes, changes or ends."""
    PINNED = "pinned"
    """A user's or the operator's want stands above the autoscaler's."""
    RESTARTS = "restarts"
    """A change would restart the scripts, and the policy does not allow that."""
    SETTLING = "settling"
    """The generation has not been measured for one whole window yet."""
    VERDICT = "verdict"
    """The last decision is still being measured."""
    COOLDOWN = "cooldown"
    """The last decision is too young for another one."""
    GAP = "gap"
    """A metric has been missing, and is not there again for one whole window."""
    NO_STEPS = "no_steps"
    """A rule needs the steps that the job does not report."""
    NO_CURVE = "no_curve"
    """A rule needs a measurement that there is none of yet."""


def forbidden(policy: Policy, seen: Seen) -> tuple[Hold, str] | None:
    """Return what forbids any change of the job's size now, with a sentence; None: nothing."""
    if not seen.is_running or seen.nodes == 0:
        return Hold.NOT_RUNNING, "No world trains now: the size is decided when one does."
    if seen.is_pinned:
        by = seen.pinned_by or "a user"
        return Hold.PINNED, (
            f"The want of {by} pins the job to {seen.wanted} nodes: nothing is decided until it "
            f"is taken back (elasticd scale {seen.job} auto)."
        )
    if not (seen.is_in_process or policy.allow_restarts or policy.is_dry_run):
        return Hold.RESTARTS, (
            "A change of size restarts this job's scripts, since it runs in restart mode: nothing "
            "is done unless the policy says allow_restarts = true."
        )
    return None
