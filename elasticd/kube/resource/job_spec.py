"""Translates an ElasticJob to elasticd's JobSpec, and compares it with the submitted one."""

import hashlib
from collections.abc import Mapping
from dataclasses import fields, replace

from elasticd.autoscale.policy_file.parser import parsed
from elasticd.checkpoint.storage.location import checked_url
from elasticd.kube.resource.elastic_job import ElasticJob
from elasticd.kube.resource.name import SECRETS_FOLDER, job_name, job_owner
from elasticd.kube.resource.spec import CheckpointField, ElasticJobSpec, digests
from elasticd.records.autoscale.policy import Policy
from elasticd.records.checkpoint import (
    CheckpointSpec,
    read_bandwidth,
    read_every,
    read_upload_every,
)
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec, Limits, preload_of

__all__ = ["changed_fields", "has_policy_of", "job_spec", "policy_of"]

POLICY_TEXT = "elasticjob_text"
"""The key of the policy's text in the policy's record, to see whether the object still has this
text."""


def job_spec(
    job: ElasticJob, name: JobName, *, cluster: str = "", now_unix_s: float = 0.0
) -> JobSpec:
    """Return the spec to submit for a valid object.

    Args: job: the object. name: the name of the job in etcd. cluster: the identity of the
    Kubernetes cluster. now_unix_s: the time of submission, for people and for
    `activeDeadlineSeconds`.
    """
    spec = job.spec
    assert spec is not None, "it was refused before"
    kind, entry, args = _entry(spec)
    return JobSpec(
        name=name,
        uid=job.uid,
        entry_kind=kind,
        entry=entry,
        args=args,
        min_nodes=spec.min_nodes,
        max_nodes=spec.max_nodes,
        workers_per_node=spec.slots_per_node,
        node_labels=spec.node_selector,
        priority=spec.priority or 0,
        cwd=spec.working_dir,
        env={
            variable.name: variable.value or "" for variable in spec.env if not variable.is_secret
        },
        env_files=_secrets(spec),
        files=spec.files,
        preload=preload_of(spec.preload)[0],
        learns_imports=preload_of(spec.preload)[1],
        limits=Limits(user_error=spec.limits.max_restarts, node_loss=spec.limits.max_node_losses),
        shutdown_timeout_s=spec.timeouts.shutdown_s,
        failure_timeout_s=min(3.0, spec.timeouts.shutdown_s),
        formation_timeout_s=spec.timeouts.formation_s,
        join_window_s=spec.timeouts.join_window_s,
        isolation_limit_s=spec.timeouts.isolation_s,
        progress_timeout_s=spec.timeouts.progress_s,
        output_timeout_s=spec.timeouts.output_s,
        checkpoint=_checkpoint(spec.checkpoint, job) if spec.checkpoint is not None else None,
        submitted_by=f"elasticjob@{job.namespace}",
        submitted_at_unix_s=round(now_unix_s, 3),
        owner=job_owner(job, cluster),
    )


def policy_of(job: ElasticJob, *, now_unix_s: float) -> Policy | None:
    """Return the policy of a valid object; None if it has none.

    `now_unix_s` is the time from which a deadline with `within` counts.
    """
    if job.spec is None or job.spec.autoscale is None:
        return None
    text = job.spec.autoscale.policy
    policy = parsed(text, file="spec.autoscale.policy", now_unix_s=now_unix_s)
    return replace(
        policy,
        uid=job.uid,
        set_by=f"elasticjob@{job.namespace}",
        set_at_unix_s=round(now_unix_s, 3),
        unknown={**policy.unknown, POLICY_TEXT: _mark(text)},
    )


def has_policy_of(policy: Policy | None, job: ElasticJob) -> bool:
    """Return whether the object asks for the policy of the record; a policy that the operator did
    not write counts as none.
    """
    text = job.spec.autoscale.policy if job.spec is not None and job.spec.autoscale else None
    mark = policy.unknown.get(POLICY_TEXT) if policy is not None else None
    return mark == (_mark(text) if text is not None else None)


def changed_fields(job: ElasticJob, standing: JobSpec) -> tuple[str, ...]:
    """Return the fields of the object that differ from those of its submitted job."""
    if job.spec is None:
        return ()
    now = job_spec(job, standing.name)
    # Of a submitted job, both may have digests in place of long files.
    now, standing = (replace(each, files=digests(each.files)) for each in (now, standing))
    if not job.spec.preload:  # An older version submitted the same object without this field.
        now = replace(now, learns_imports=standing.learns_imports)
    names = [
        f.name
        for f in fields(JobSpec)
        if f.name in _FIELDS and getattr(now, f.name) != getattr(standing, f.name)
    ]
    return tuple(dict.fromkeys(_FIELDS[name] for name in names))


# --- private ----------------------------------------------------------------------------------

_FIELDS: Mapping[str, str] = {
    "entry_kind": "spec.script, module or command",
    "entry": "spec.script, module or command",
    "args": "spec.args",
    "min_nodes": "spec.nodes",
    "max_nodes": "spec.nodes",
    "workers_per_node": "spec.slotsPerNode",
    "node_labels": "spec.nodeSelector",
    "priority": "spec.priority",
    "cwd": "spec.workingDir",
    "env": "spec.env",
    "env_files": "spec.env",
    "files": "spec.files",
    "preload": "spec.preload",
    "learns_imports": "spec.preload",
    "limits": "spec.limits",
    "shutdown_timeout_s": "spec.timeouts",
    "formation_timeout_s": "spec.timeouts",
    "join_window_s": "spec.timeouts",
    "isolation_limit_s": "spec.timeouts",
    "progress_timeout_s": "spec.timeouts",
    "output_timeout_s": "spec.timeouts",
    "checkpoint": "spec.checkpoint",
}
"""The field of the object from which each field of a JobSpec comes; the operator sets the other
fields."""


def _entry(spec: ElasticJobSpec) -> tuple[EntryKind, str, tuple[str, ...]]:
    """Return the entry point, in the form that `elasticd run` makes of its command line."""
    if spec.command:
        return EntryKind.COMMAND, spec.command[0], (*spec.command[1:], *spec.args)
    entry = spec.script or spec.module
    if spec.python:
        # The warm pool cannot fork another interpreter, so the entry point is that program.
        args = ("-u", *(("-m",) if spec.module else ()), entry, *spec.args)
        return EntryKind.COMMAND, spec.python, args
    return (EntryKind.MODULE if spec.module else EntryKind.SCRIPT), entry, spec.args


def _secrets(spec: ElasticJobSpec) -> Mapping[str, str]:
    """Return the file of each variable whose value is in a Secret."""
    found = {}
    for variable in spec.env:
        ref = variable.value_from.secret_key_ref if variable.value_from is not None else None
        if ref is not None:
            found[variable.name] = f"{SECRETS_FOLDER}/{ref.name}/{ref.key}"
    return found


def _checkpoint(given: CheckpointField, job: ElasticJob) -> CheckpointSpec:
    every = read_every("spec.checkpoint.every", given.every)
    return CheckpointSpec(
        url=checked_url(given.url, here="/", flag="spec.checkpoint.url"),
        # This is not the job's own name: an object that is deleted and applied again continues its
        # checkpoints.
        owner=job_name(job),
        options=given.options,
        every=every,
        upload_every=read_upload_every("spec.checkpoint.uploadEvery", given.upload_every, every),
        mirror_bytes_per_s=read_bandwidth(
            "spec.checkpoint.mirrorBandwidth", given.mirror_bandwidth
        ),
        keep_last=given.keep,
        keep_every_steps=given.keep_every_steps,
        copy=given.copy,
        timeout_s=given.timeout_s,
    )


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
