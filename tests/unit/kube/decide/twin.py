"""A Kubernetes and an etcd of a few dictionaries: what actions do to them, and what else happens.

The agents of this world do what the records say, one thing at a time, when `agents` is called.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from elasticd.control.report.change_report import ChangeReport
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
    UndrainNode,
    WriteJob,
    WritePolicy,
    WriteWant,
)
from elasticd.kube.decide.cluster import AgentPod, KubeNode, ObservedCluster, Records
from elasticd.kube.decide.decide import decide
from elasticd.kube.decide.memory import OperatorMemory, remembered, without
from elasticd.kube.resource.elastic_job import ElasticJob, elastic_job
from elasticd.kube.resource.job_records import JobRecords
from elasticd.kube.resource.name import FINALIZER, PART_OF, PART_OF_LABEL
from elasticd.kube.resource.status import status_json
from elasticd.kube.resource.timestamp import timestamp
from elasticd.records.ids import Generation, Incarnation, NodeId
from elasticd.records.job import JobStatus, Want
from elasticd.records.member import Drain, Node, NodeLabels
from elasticd.records.reason import Phase, Reason

IDENTITY = "cluster-1"
BEGIN_UNIX_S = 1_795_000_000.0
SCRIPT = {"script": "train.py"}
OURS = {PART_OF_LABEL: PART_OF}


@dataclass
class Twin:
    """The world; `see` is what an operator is shown of it."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    jobs: dict[Any, JobRecords] = field(default_factory=dict)
    drains: dict[Any, Drain] = field(default_factory=dict)
    labels: dict[Any, NodeLabels] = field(default_factory=dict)
    agents: dict[Any, Node] = field(default_factory=dict)
    nodes: dict[str, KubeNode] = field(default_factory=dict)
    pods: dict[str, AgentPod] = field(default_factory=dict)
    memory: OperatorMemory = field(default_factory=OperatorMemory)
    events: list[TellEvent] = field(default_factory=list)
    done: list[Action] = field(default_factory=list)
    is_etcd_away: bool = False
    is_etcd_read: bool = True
    now_s: float = 100.0
    version: int = 0

    # --- what people and Kubernetes do --------------------------------------------------------

    def create(
        self,
        name: str = "x",
        spec: Any = None,
        uid: str = "",
        namespace: str = "team",
        **meta: Any,
    ) -> str:
        uid = uid or f"uid-{len(self.objects)}-{name}"
        self.objects[uid] = {
            "metadata": {
                "namespace": namespace,
                "name": name,
                "uid": uid,
                "generation": 1,
                "creationTimestamp": timestamp(self.now_unix_s),
                "finalizers": [],
                "resourceVersion": self._next(),
                "annotations": {},
                **meta,
            },
            "spec": dict(SCRIPT if spec is None else spec),
            "status": {},
        }
        return uid

    def edit(self, uid: str, **spec: Any) -> None:
        found = self.objects[uid]
        merged = {**found["spec"], **spec}
        merged = {key: value for key, value in merged.items() if value is not None}
        if merged != found["spec"]:
            found["spec"] = merged
            found["metadata"]["generation"] += 1
            found["metadata"]["resourceVersion"] = self._next()

    def delete(self, uid: str, *, force: bool = False) -> None:
        meta = self.objects[uid]["metadata"]
        if force:
            meta["annotations"]["elasticd.dev/force-delete"] = "true"
        meta.setdefault("deletionTimestamp", timestamp(self.now_unix_s))
        meta["resourceVersion"] = self._next()
        self._collect(uid)

    def node(self, name: str, *, with_agent: bool = True, **more: Any) -> None:
        self.nodes[name] = KubeNode(name=name, **more)
        if with_agent:
            self.pods[f"e/{name}"] = AgentPod(namespace="e", name=name, node_name=name, labels=OURS)
            self.agents[NodeId(name)] = Node(
                node=NodeId(name),
                incarnation=Incarnation("a.1"),
                host=name,
                address="",
                port=1,
                slots=1,
            )

    # --- what the agents do -------------------------------------------------------------------

    def agents_run(self) -> None:
        """Every job goes one step on towards what its records say."""
        for name, found in list(self.jobs.items()):
            if not found.is_active:
                self.jobs[name] = replace(found, members=())
            elif found.is_stop_wanted:
                status = replace(
                    found.status, phase=Phase.STOPPED, reason=Reason.STOP_REQUESTED, nodes=0
                )
                why = next(want.why for want in found.wants.values() if want.is_stop)
                self.jobs[name] = replace(found, status=status, message=why, is_active=False)
            elif self.agents:
                ready = sorted(self.agents.keys() - self.drains.keys())[: found.wanted_nodes]
                self.form(name, ready)

    def form(self, name: str, ready: list[Any], reason: Reason = Reason.SCALED) -> None:
        found = self.jobs[name]
        if len(ready) < found.spec.min_nodes:
            if found.status.generation:
                status = replace(found.status, phase=Phase.WAITING, reason=Reason.BELOW_MIN)
                self.jobs[name] = replace(found, status=status)
            return
        if tuple(ready) == found.members and found.status.phase is Phase.RUNNING:
            return
        generation = Generation(found.status.generation + 1)
        change = ChangeReport(
            generation=generation,
            reason=reason if generation > 1 else Reason.FIRST_WORLD,
            culprit=None,
            lost=(),
            nodes=len(ready),
            world_size=len(ready),
            phases_s={},
            at_unix_s=self.now_unix_s,
        )
        status = JobStatus(
            phase=Phase.RUNNING, generation=generation, nodes=len(ready), uid=found.spec.uid
        )
        self.jobs[name] = replace(
            found, status=status, members=tuple(ready), changes=(*found.changes, change)
        )

    def end(self, name: str, phase: Phase = Phase.SUCCEEDED) -> None:
        found = self.jobs[name]
        status = replace(found.status, phase=phase, reason=Reason.ALL_SUCCEEDED)
        self.jobs[name] = replace(found, status=status, is_active=False, members=())

    # --- the operator -------------------------------------------------------------------------

    @property
    def now_unix_s(self) -> float:
        return BEGIN_UNIX_S + self.now_s

    def object(self, uid: str) -> ElasticJob:
        return elastic_job(self.objects[uid])

    def see(self) -> ObservedCluster:
        jobs = {uid: elastic_job(plain) for uid, plain in self.objects.items()}
        self.memory = without(self.memory, jobs)
        records = Records(
            jobs=dict(self.jobs),
            drains=dict(self.drains),
            agents=dict(self.agents),
            labels=dict(self.labels),
        )
        found = ObservedCluster(
            identity=IDENTITY,
            jobs=jobs,
            nodes=dict(self.nodes),
            pods=dict(self.pods),
            records=None if self.is_etcd_away or not self.is_etcd_read else records,
            is_etcd_away=self.is_etcd_away,
            memory=self.memory,
        ).remembering(now_s=self.now_s)
        self.memory = found.memory
        return found

    def decide(self) -> tuple[Action, ...]:
        return decide(self.see(), now_s=self.now_s, now_unix_s=self.now_unix_s)

    def turn(self, seconds: float = 1.0) -> tuple[Action, ...]:
        """Decide once, and do all of it."""
        seen = self.see()
        actions = decide(seen, now_s=self.now_s, now_unix_s=self.now_unix_s)
        for action in actions:
            self.perform(action)
            self.memory = remembered(self.memory, action, seen.jobs, now_s=self.now_s)
        self.now_s += seconds
        return actions

    def converge(self, limit: int = 12) -> list[Action]:
        """Decide until there is nothing to do."""
        found: list[Action] = []
        for _ in range(limit):
            actions = self.turn()
            if not actions:
                return found
            found.extend(actions)
        raise AssertionError(f"there is always something to do: {self.decide()}")

    def perform(self, action: Action) -> None:
        self.done.append(action)
        match action:
            case AddFinalizer():
                self._meta(action.job.uid)["finalizers"] = [FINALIZER]
                if action.replicas is not None:
                    self.edit(action.job.uid, replicas=action.replicas)
            case RemoveFinalizer():
                self._meta(action.job.uid)["finalizers"] = []
                self._collect(action.job.uid)
            case ApplyReplicas():
                if action.job.uid in self.objects:
                    self.edit(action.job.uid, replicas=action.replicas)
            case ApplyStatus():
                if action.job.uid in self.objects:
                    self.objects[action.job.uid]["status"] = status_json(action.status)
                    self._meta(action.job.uid)
            case DeleteObject():
                if action.job.uid in self.objects:
                    self.delete(action.job.uid)
            case TellEvent():
                self.events.append(action)
            case WriteJob():
                name = action.spec.name
                assert name not in self.jobs or not self.jobs[name].is_active, "it is in use"
                assert all(job.spec.uid != action.job.uid for job in self.jobs.values()), "twice"
                self.jobs[name] = JobRecords(spec=action.spec, status=JobStatus(uid=action.job.uid))
            case WritePolicy():
                self.jobs[action.job] = replace(self.jobs[action.job], policy=action.policy)
            case RemovePolicy():
                found = self.jobs[action.job]
                wants = {key: want for key, want in found.wants.items() if key != "autoscaler"}
                self.jobs[action.job] = replace(found, policy=None, wants=wants)
            case WriteWant():
                self._want(action.job, nodes=action.nodes, why=action.why)
            case StopJob():
                self._want(action.job, is_stop=True, why=action.why)
            case DrainNode():
                self.drains[action.node] = Drain(why=action.why, by=action.by)
            case UndrainNode():
                assert self.drains.pop(action.node).by == action.by
            case LabelNode() if action.labels:
                self.labels[action.node] = NodeLabels(labels=action.labels, by=action.by)
            case LabelNode():
                assert self.labels.pop(action.node).by == action.by

    # --- private ------------------------------------------------------------------------------

    def _next(self) -> str:
        self.version += 1
        return str(self.version)

    def _meta(self, uid: str) -> dict[str, Any]:
        if uid not in self.objects:
            return {}
        meta: dict[str, Any] = self.objects[uid]["metadata"]
        meta["resourceVersion"] = self._next()
        return meta

    def _collect(self, uid: str) -> None:
        meta = self.objects.get(uid, {}).get("metadata", {})
        if "deletionTimestamp" in meta and not meta["finalizers"]:
            del self.objects[uid]

    def _want(self, name: str, **changes: Any) -> None:
        found = self.jobs[name]
        before = found.wants.get("operator", Want(writer="operator"))
        wants = {**found.wants, "operator": replace(before, **changes)}
        self.jobs[name] = replace(found, wants=wants)
