"""The names in elasticd for objects of Kubernetes; in elasticd a name has at most 63 characters."""

import hashlib

from elasticd.kube.resource.elastic_job import ElasticJob, JobKey
from elasticd.records.ids import JobName
from elasticd.records.job import JobSpec

__all__ = [
    "AGENT",
    "COMPONENT_LABEL",
    "FINALIZER",
    "FORCE_DELETE",
    "GROUP",
    "KIND",
    "MANAGER",
    "NAME_LIMIT",
    "PART_OF",
    "PART_OF_LABEL",
    "PLURAL",
    "SECRETS_FOLDER",
    "SHORT_NAME",
    "VERSION",
    "job_name",
    "job_name_apart",
    "job_of_owner",
    "job_owner",
    "other_cluster",
    "owner_prefix",
    "selector",
    "shortened",
]

GROUP = "elasticd.dev"
VERSION = "v1alpha1"
KIND = "ElasticJob"
PLURAL = "elasticjobs"
SHORT_NAME = "ej"
MANAGER = "elasticd-operator"
"""The manager's name for server-side apply: the operator owns the fields that it applied, users own
the others."""
FINALIZER = f"{GROUP}/job"
"""The finalizer that keeps a deleted object until its job has stopped and saved."""
FORCE_DELETE = f"{GROUP}/force-delete"
"""The annotation that deletes an object at once, whatever the state of its job; any value but
"false" counts."""
COMPONENT_LABEL = "app.kubernetes.io/component"
AGENT = "agent"
"""The component label of an agent's pod; a pod without such a label counts as an agent's too."""
PART_OF_LABEL = "app.kubernetes.io/part-of"
PART_OF = "elasticd"
"""The label of elasticd's pods; the operator ignores pods without it."""
SECRETS_FOLDER = "/var/run/secrets/elasticd.dev"
"""The folder in the agents' pods where `<secret>/<key>` is a file for each Secret that is
mounted."""
NAME_LIMIT = 63
_MARK = 8
_OWNER = "kubernetes/"


def shortened(name: str, limit: int = NAME_LIMIT) -> str:
    """Return a name of at most `limit` characters: a longer name ends in a hash of the whole."""
    if len(name) <= limit:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:_MARK]
    return f"{name[: limit - _MARK - 1].rstrip('.-_')}-{mark}"


def job_name(job: ElasticJob) -> JobName:
    """Return the name of an object's job in etcd, unless another job has this name."""
    return JobName(shortened(f"{job.namespace}.{job.name}"))


def job_name_apart(job: ElasticJob) -> JobName:
    """Return the name to use if somebody else's job has the first one; no other object has it."""
    mark = hashlib.sha256(job.uid.encode()).hexdigest()[:_MARK]
    return JobName(f"{shortened(job_name(job), NAME_LIMIT - _MARK - 1)}-{mark}")


def job_owner(job: ElasticJob, cluster: str) -> str:
    """Return the mark in the job's spec by which an operator recognises its own job."""
    return f"{owner_prefix(cluster)}{job.namespace}/{job.name}"


def job_of_owner(spec: JobSpec, cluster: str) -> JobKey:
    """Return the object for which this cluster's operator submitted the job."""
    namespace, _, name = spec.owner.removeprefix(owner_prefix(cluster)).partition("/")
    return JobKey(namespace=namespace, name=name, uid=spec.uid)


def owner_prefix(cluster: str) -> str:
    """Return the prefix of the marks of all jobs and drains of one Kubernetes cluster."""
    return f"{_OWNER}{cluster}/"


def other_cluster(owner: str, cluster: str) -> str:
    """Return the identity of another Kubernetes cluster that a mark names; empty if none."""
    found, is_any, _ = owner.removeprefix(_OWNER).partition("/")
    return found if owner.startswith(_OWNER) and is_any and found != cluster else ""


def selector(job: JobName) -> str:
    """Return the label selector of a job for /scale: an HPA refuses an empty selector."""
    return f"{GROUP}/job={job}"
