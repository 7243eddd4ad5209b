"""Checks whether a policy suits a certain job: its range, its steps, its end."""

from elasticd.errors import Refused
from elasticd.records.autoscale.policy import Policy
from elasticd.records.job import JobSpec, JobStatus

__all__ = ["checked", "rules_by_steps"]


def checked(
    policy: Policy,
    spec: JobSpec,
    status: JobStatus | None,
    *,
    reports_steps: bool | None,
    now_unix_s: float,
) -> None:
    """Refuse a policy that has no effect, or a wrong effect, for this job.

    Args:
        policy: a policy that `parsed` returned.
        spec: the spec of the job.
        status: the status of the job; None if it has not begun.
        reports_steps: whether the job reports its steps; None if not known yet. In-process jobs do,
            and scripts of restart mode that call `elasticd.progress`.
        now_unix_s: the present time, for deadlines.

    Raises:
        Refused: the policy contradicts the job; the message is one sentence.
    """
    name = spec.name
    if status is not None and status.phase.is_final:
        raise Refused(f"Job {name} is over ({status.phase}): a policy needs a job that runs.")
    if spec.min_nodes == spec.max_nodes:
        raise Refused(
            f"Job {name} runs on exactly {_counted(spec.max_nodes)}, so no policy can size it: "
            "submit it with a range, as in --nnodes 1:4."
        )
    span = f"the job runs on {spec.min_nodes}:{spec.max_nodes} nodes"
    for key, nodes in (("min_nodes", policy.min_nodes), ("max_nodes", policy.max_nodes)):
        if nodes and not spec.min_nodes <= nodes <= spec.max_nodes:
            raise Refused(
                f"The policy's {key} = {nodes} is outside of what job {name} may have ({span}): "
                "change it, or leave it out."
            )
    by_steps = rules_by_steps(policy)
    if by_steps and reports_steps is False:
        raise Refused(
            f"The rule [{by_steps[0]}] needs the job's steps, and job {name} reports none: call "
            "elasticd.progress(step=...) in its script, use elasticd.run, or take the rule out."
        )
    if policy.deadline is not None and policy.deadline.at_unix_s <= now_unix_s:
        ago_s = now_unix_s - policy.deadline.at_unix_s
        raise Refused(
            f"The deadline of the policy was {ago_s / 60:.0f} minutes ago by this machine's clock: "
            "set a later one."
        )


def rules_by_steps(policy: Policy) -> tuple[str, ...]:
    """Return the rules of a policy that use the job's steps."""
    rules = {"goodput": policy.goodput, "deadline": policy.deadline, "budget": policy.budget}
    return tuple(name for name, rule in rules.items() if rule is not None)


def _counted(nodes: int) -> str:
    return f"{nodes} node" + ("" if nodes == 1 else "s")
