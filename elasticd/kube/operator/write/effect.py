"""Carries one action out: one write to the API server or to etcd, which may be repeated."""

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import assert_never

from elasticd.control.job_policy import set_policy, unset_policy
from elasticd.control.job_submission import submit
from elasticd.errors import Fenced, NotFound, NotSupported, Refused, Unavailable
from elasticd.kube.api.port import ELASTIC_JOBS, Api, EventNote, EventType, Object
from elasticd.kube.decide.action import (
    Action,
    AddFinalizer,
    ApplyReplicas,
    ApplyStatus,
    DeleteObject,
    DrainNode,
    LabelNode,
    RemoveFinalizer,
    RemovePolicy,
    StopJob,
    TellEvent,
    ToApi,
    ToEtcd,
    UndrainNode,
    WriteJob,
    WritePolicy,
    WriteWant,
)
from elasticd.kube.operator.write.etcd_write import (
    drain_node,
    label_node,
    stop_job,
    undrain_node,
    write_want,
)
from elasticd.kube.resource.elastic_job import JobKey
from elasticd.kube.resource.name import FINALIZER
from elasticd.kube.resource.status import status_json
from elasticd.records.codec import decode
from elasticd.records.ids import JobName
from elasticd.records.job import JobSpec
from elasticd.records.keys import Keys
from elasticd.store.api import Store

__all__ = ["Effects", "group_of", "is_to_etcd", "word_of"]

APPLIED = ("name", "namespace", "uid", "resourceVersion")
"""The fields that identify the object in a server-side apply, which must concern this object in the
version that was observed. A server may accept another uid than that of the object, and an old
status must not be written to a new object of the same name."""


@dataclass(frozen=True, slots=True)
class Effects:
    """The writes of one evaluation. Any thread may call it."""

    api: Api
    store: Store
    """The store, which writes only while this process leads."""
    keys: Keys
    objects: dict[str, Object]
    """The ElasticJobs by uid, as they were at the decision. After each write the object here is
    replaced by the result, so that the next write does not refer to the old version."""
    specs: Mapping[JobName, JobSpec]
    """The specs of the jobs in etcd at the decision."""
    has_ended: Callable[[], bool]
    """Return whether it is known that another process leads, or may lead, by now. A write to the
    API server holds for the version of its object that was observed, so it does no harm then; but
    two processes that write on would contradict each other before people."""

    def carry_out(self, action: Action) -> None:
        """Carry an action out.

        Raises: Fenced: the object or job of the decision does not exist any more, or this process
        does not lead. Unavailable: the API server or etcd does not answer. CallError: the API
        server or etcd refuses the write.
        """
        if self.has_ended():
            raise Fenced("This process does not lead any more.")
        if isinstance(action, ToEtcd):
            self._to_etcd(action)
        else:
            try:
                self._to_api(action)
            except NotFound as exc:
                raise Fenced(str(exc)) from exc

    # --- private ------------------------------------------------------------------------------

    def _to_api(self, action: ToApi) -> None:
        seen = self._object(action.job)
        metadata = {key: seen["metadata"][key] for key in APPLIED}
        match action:
            case AddFinalizer():
                standing = seen["metadata"].get("finalizers") or []
                self._set_finalizers(seen, [*standing, FINALIZER], replicas=action.replicas)
            case RemoveFinalizer():
                standing = seen["metadata"].get("finalizers") or []
                self._set_finalizers(seen, [each for each in standing if each != FINALIZER])
            case ApplyReplicas():
                body = {"metadata": metadata, "spec": {"replicas": action.replicas}}
                self._keep(self.api.apply(ELASTIC_JOBS, body))
            case ApplyStatus():
                body = {"metadata": metadata, "status": status_json(action.status)}
                self._keep(self.api.apply(ELASTIC_JOBS, body, subresource="status"))
            case DeleteObject():
                self.api.delete(ELASTIC_JOBS, seen)
            case TellEvent():
                kind = EventType.WARNING if action.is_warning else EventType.NORMAL
                self.api.note(
                    EventNote(about=seen, type=kind, reason=action.reason, message=action.message)
                )
            case _:
                assert_never(action)

    def _to_etcd(self, action: ToEtcd) -> None:
        store, keys = self.store, self.keys
        match action:
            case WriteJob() if self._is_submitted(action.spec):
                return  # The watch has not shown the job yet, and it may even be over.
            case WriteJob():
                try:
                    submit(store, keys, action.spec)
                except Refused:
                    if not self._is_submitted(action.spec):
                        raise
            case WritePolicy():
                try:
                    set_policy(store, keys, self._spec(action.job), action.policy)
                except NotFound as exc:
                    raise Fenced(str(exc)) from exc
            case RemovePolicy():
                with suppress(NotFound):
                    unset_policy(store, keys, self._spec(action.job))
            case WriteWant():
                write_want(
                    store,
                    keys,
                    action.job,
                    action.uid,
                    nodes=action.nodes,
                    why=action.why,
                    now_unix_s=time.time(),
                )
            case StopJob():
                self._check_gone(action.gone)
                stop_job(
                    store, keys, action.job, action.uid, why=action.why, may_end=action.may_end
                )
            case DrainNode():
                drain_node(store, keys, action.node, why=action.why, by=action.by)
            case UndrainNode():
                undrain_node(store, keys, action.node, by=action.by)
            case LabelNode():
                label_node(store, keys, action.node, labels=action.labels, by=action.by)
            case _:
                assert_never(action)

    def _check_gone(self, job: JobKey | None) -> None:
        """Ask the API server itself whether an object is gone, if that is required."""
        if job is None:
            return
        try:
            items = self.api.list(ELASTIC_JOBS, namespace=job.namespace, name=job.name).items
        except Unavailable as exc:  # The error is not etcd's, to which this action writes.
            raise Fenced(f"Nobody knows whether ElasticJob {job} is gone: {exc}") from exc
        if any(item["metadata"]["uid"] == job.uid for item in items):
            raise Fenced(f"ElasticJob {job} is not gone.")

    def _is_submitted(self, spec: JobSpec) -> bool:
        """Return whether this job was submitted before, and the answer was lost."""
        item = self.store.get(self.keys.spec(spec.name))
        with suppress(NotSupported):
            return item is not None and decode(JobSpec, item.value).uid == spec.uid
        return False

    def _set_finalizers(
        self, seen: Object, finalizers: list[str], *, replicas: int | None = None
    ) -> None:
        change: dict[str, object] = {"metadata": {"finalizers": finalizers or None}}
        if replicas is not None:
            change["spec"] = {"replicas": replicas}
        self._keep(self.api.patch(ELASTIC_JOBS, seen, change))

    def _keep(self, found: Object) -> None:
        self.objects[found["metadata"]["uid"]] = found

    def _object(self, job: JobKey) -> Object:
        found = self.objects.get(job.uid)
        if found is None:
            raise Fenced(f"ElasticJob {job} is gone.")
        return found

    def _spec(self, job: JobName) -> JobSpec:
        found = self.specs.get(job)
        if found is None:
            raise Fenced(f"Job {job!r} is gone.")
        return found


def is_to_etcd(action: Action) -> bool:
    """Return whether an action writes to etcd, and not to the API server."""
    return isinstance(action, ToEtcd)


def group_of(action: Action) -> str:
    """Return the group of the action: the actions of one group are done one after the other."""
    match action:
        case DrainNode() | UndrainNode() | LabelNode():
            return f"node {action.node}"
        case WritePolicy() | RemovePolicy() | WriteWant() | StopJob():
            return f"job {action.job}"
        case _:
            return f"ElasticJob {action.job}"


def word_of(action: Action) -> str:
    """Return the action's name for metrics and the log, such as `apply_status`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(action).__name__).lower()
