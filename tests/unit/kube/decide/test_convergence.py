"""From any state the operator comes to rest, at the same place, whatever it saw on the way."""

import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from elasticd.kube.decide.action import StopJob, WriteJob
from elasticd.kube.decide.cluster import ObservedCluster, Taint
from elasticd.kube.decide.journal import line, opening, replay
from elasticd.kube.decide.memory import OperatorMemory
from elasticd.kube.resource.job_records import JobRecords
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import EntryKind, JobSpec, JobStatus, Want
from elasticd.records.member import Drain
from elasticd.records.reason import Phase, Reason
from tests.unit.kube.decide.twin import IDENTITY, Twin

POLICY = '[target]\nmetrics = [{name = "q", query = "sum(q)", load = 5}]\n'
SPECS: list[dict[str, Any]] = [
    {"script": "train.py", "nodes": {"min": 1, "max": 4}},
    {"module": "a.b", "nodes": {"min": 2, "max": 3}, "replicas": 2},
    {"command": ["sh"], "nodes": {"max": 4}, "autoscale": {"policy": POLICY}},
    {"script": "a.py", "activeDeadlineSeconds": 40, "ttlSecondsAfterFinished": 5},
    {"script": "a.py", "module": "b"},
    {"nodes": "many"},
    {},
]
TAINTS: list[tuple[Taint, ...]] = [(), (Taint(key="karpenter.sh/disrupted", effect="NoSchedule"),)]
FOREIGN_NODE = NodeId("n2")
THINGS = 60


class Life:
    """One seed of a life of a cluster."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.twin = Twin()
        self.journal = [opening(IDENTITY)]
        self.before = ObservedCluster(identity=IDENTITY)
        for number in range(5):
            self.twin.node(f"n{number}")
        self.foreign = foreign("team.job-1")
        self.twin.jobs["team.job-1"] = self.foreign
        self.twin.jobs["cli-run"] = foreign("cli-run")
        self.twin.drains[FOREIGN_NODE] = Drain(why="a person")

    def happen(self) -> None:
        """Let one thing happen."""
        draw, twin = self.draw, self.twin
        uid = draw.choice([*twin.objects, None])
        job = draw.choice([*twin.jobs, None])
        node = draw.choice([*twin.nodes, None])
        match draw.randrange(16):
            case 0:
                name = f"job-{draw.randrange(3)}"
                taken = {one["metadata"]["name"] for one in twin.objects.values()}
                if name not in taken:
                    twin.create(name, spec=draw.choice(SPECS), uid=f"uid-{twin.version}")
            case 1 if uid:
                twin.delete(uid, force=draw.random() < 0.3)
            case 2 if uid:
                twin.edit(uid, replicas=draw.choice([1, 2, 3, 4, 9, None]))
            case 3 if uid:
                twin.edit(uid, **draw.choice(SPECS))
            case 4 if uid:
                twin.edit(uid, autoscale=draw.choice([None, {"policy": POLICY}, {"policy": "x"}]))
            case 5:
                twin.is_etcd_away = not twin.is_etcd_away
            case 6 if job and "kubernetes" in twin.jobs[job].spec.owner:
                twin.end(job, draw.choice([Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED]))
            case 7 if job and self.is_ours(job):
                found = twin.jobs[job]
                want = Want(writer="autoscaler", nodes=draw.randrange(1, 5))
                twin.jobs[job] = replace(found, wants={**found.wants, "autoscaler": want})
            case 8 if job and self.is_ours(job) and twin.jobs[job].is_active:
                ready = [name for name in twin.agents if draw.random() < 0.6]
                twin.form(job, ready, draw.choice([Reason.NODE_LOST, Reason.WORKER_FAILED]))
            case 9 if node:
                twin.nodes[node] = replace(
                    twin.nodes[node],
                    is_cordoned=draw.random() < 0.3,
                    is_ready=draw.random() < 0.7,
                    is_deleted=draw.random() < 0.1,
                    taints=draw.choice(TAINTS),
                )
            case 10 if node:
                del twin.nodes[node]
            case 11 if node:
                twin.pods.pop(f"e/{node}", None)
                twin.agents.pop(NodeId(node), None)
            case 12:
                twin.node(f"n{draw.randrange(5)}")
            case 13:
                twin.memory = OperatorMemory()  # The operator is replaced.
            case 14 if uid:
                twin.objects[uid]["metadata"]["finalizers"] = []
                twin._collect(uid)
            case 15 if job and self.is_ours(job) and not twin.jobs[job].is_active:
                del twin.jobs[job]
        if draw.random() < 0.5:
            twin.agents_run()
            self.keep_foreign()

    def turn(self) -> None:
        seen = self.twin.see()
        now_s, now_unix_s = self.twin.now_s, self.twin.now_unix_s
        actions = self.twin.turn(self.draw.choice([0.2, 1.0, 5.0]))
        self.journal.append(line(self.before, seen, actions, now_s=now_s, now_unix_s=now_unix_s))
        self.before = seen

    def rest(self) -> None:
        """Let nothing happen any more, until there is nothing to do."""
        self.twin.is_etcd_away = False
        for _ in range(6):
            self.twin.converge()
            self.twin.agents_run()
            self.keep_foreign()
            self.twin.now_s += 60.0
        self.twin.converge()

    def is_ours(self, job: str) -> bool:
        return self.twin.jobs[job].spec.owner.startswith("kubernetes/cluster-1/")

    def keep_foreign(self) -> None:
        """The agents of this world serve those as well; they are none of the operator's."""
        self.twin.jobs["team.job-1"] = self.foreign
        self.twin.jobs["cli-run"] = foreign("cli-run")


def foreign(name: str) -> JobRecords:
    spec = JobSpec(
        name=JobName(name), uid=f"other {name}", entry_kind=EntryKind.SCRIPT, entry="a.py"
    )
    return JobRecords(spec=spec, status=JobStatus(phase=Phase.RUNNING))


@cache
def rested(seed: int) -> Life:
    """Return a life that has come to rest; the tests look at it and leave it as it is."""
    life = Life(seed)
    for _ in range(THINGS):
        life.happen()
        life.turn()
    life.rest()
    return life


@pytest.mark.parametrize("seed", range(40))
def test_it_comes_to_rest_and_stays_there(seed: int) -> None:
    twin = rested(seed).twin
    assert twin.decide() == ()
    memory, twin.memory = twin.memory, OperatorMemory()
    assert twin.decide() == (), "an operator that starts now has nothing to do either"
    twin.memory = memory


@pytest.mark.parametrize("seed", range(40))
def test_at_rest_the_world_is_as_the_objects_say(seed: int) -> None:
    twin = rested(seed).twin
    by_uid = {found.spec.uid: found for found in twin.jobs.values()}
    for uid in twin.objects:
        job, found = twin.object(uid), by_uid.get(uid)
        status = job.status
        assert status.observed_generation == job.generation or status.is_final, status
        assert job.deleted_unix_s is None, "nothing deleted is left"
        if found is None:
            assert job.wrong or status.phase == "Lost" or status.is_final, status
        elif found.is_active and not found.is_stop_wanted and not job.wrong:
            assert job.spec is not None and job.spec.replicas is not None
            if job.spec.autoscale is not None:
                assert job.spec.replicas == found.wanted_nodes
                assert found.policy is not None
            elif (bad := status.condition("Invalid")) is None or not bad.message:
                assert found.wanted_nodes == job.spec.replicas
    for found in twin.jobs.values():
        if found.spec.owner and found.spec.uid not in twin.objects:
            assert not found.is_active, "a job without its object has ended"
    submitted = [action.job.uid for action in twin.done if isinstance(action, WriteJob)]
    assert len(submitted) == len(set(submitted)), "nothing runs twice"


@pytest.mark.parametrize("seed", range(40))
def test_what_is_not_its_own_is_never_touched(seed: int) -> None:
    twin = rested(seed).twin
    stopped = {action.job for action in twin.done if isinstance(action, StopJob)}
    assert not stopped & {"team.job-1", "cli-run"}
    assert twin.drains[FOREIGN_NODE] == Drain(why="a person")
    assert twin.jobs["cli-run"] == foreign("cli-run")


@pytest.mark.parametrize("seed", range(10))
def test_a_journal_of_a_life_replays(seed: int) -> None:
    life = rested(seed)
    assert replay(life.journal) is None
    assert len(life.journal) == THINGS + 1
