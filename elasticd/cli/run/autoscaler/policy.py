"""The policy that `elasticd run --autoscale FILE` gives to its job."""

from dataclasses import replace

from elasticd.autoscale.direct.query_metric import wanted
from elasticd.autoscale.loop.queries import queries_of
from elasticd.autoscale.policy_file.document import document
from elasticd.autoscale.policy_file.job_check import checked
from elasticd.autoscale.policy_file.parser import parsed
from elasticd.records.autoscale.policy import Policy
from elasticd.records.job import JobSpec

__all__ = ["read_policy"]


def read_policy(
    path: str, spec: JobSpec, now_unix_s: float, *, has_prometheus: bool = True
) -> Policy:
    """Read the policy, and check it against the job before anything is started.

    Raises: CallError: the file is no policy, the policy does not fit this job, or its queries need
        a Prometheus and there is none; the message says why.
    """
    policy = parsed(document(path), file=path, now_unix_s=now_unix_s)
    checked(policy, spec, None, reports_steps=None, now_unix_s=now_unix_s)
    if not has_prometheus:
        for query in queries_of(policy, spec.name):
            wanted(query)
    return replace(
        policy, uid=spec.uid, set_by=spec.submitted_by, set_at_unix_s=round(now_unix_s, 3)
    )
