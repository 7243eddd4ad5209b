"""What the operator does about objects, on a twin of the world."""

from dataclasses import replace
from typing import Any

import pytest

from elasticd.kube.decide.action import (
    AddFinalizer,
    ApplyStatus,
    RemoveFinalizer,
    StopJob,
    TellEvent,
    WriteJob,
    WriteWant,
)
from elasticd.kube.decide.decide import STATUS_EVERY_S, decide
from elasticd.kube.decide.memory import refused
from elasticd.kube.resource.elastic_job import JobKey
from elasticd.kube.resource.job_records import JobRecords
from elasticd.kube.resource.job_status import DEADLINE_WHY
from elasticd.kube.resource.spec import ElasticJobSpec
from elasticd.kube.resource.status import Condition
from elasticd.records.autoscale.policy import Policy
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec, JobStatus, Want
from elasticd.records.reason import Phase, Reason
from tests.unit.kube.decide.twin import IDENTITY, SCRIPT, Twin

ELASTIC = {"script": "train.py", "nodes": {"min": 1, "max": 4}}
POLICY = '[target]\nmetrics = [{name = "q", query = "sum(q)", load = 5}]\n'


def started(spec: Any = ELASTIC, nodes: int = 4) -> tuple[Twin, str]:
    """A job that runs."""
    twin = Twin()
    for number in range(nodes):
        twin.node(f"n{number}")
    uid = twin.create(spec=spec)
    twin.converge()
    twin.agents_run()
    twin.now_s += STATUS_EVERY_S
    twin.converge()
    return twin, uid


def conditions(twin: Twin, uid: str) -> set[str]:
    return {one.type for one in twin.object(uid).status.conditions if one.status == "True"}


def condition(twin: Twin, uid: str, kind: str) -> Condition:
    found = twin.object(uid).status.condition(kind)
    assert found is not None
    return found


def policy_in(twin: Twin) -> Policy:
    found = twin.jobs["team.x"].policy
    assert found is not None
    return found


def spec_of(twin: Twin, uid: str) -> ElasticJobSpec:
    found = twin.object(uid).spec
    assert found is not None
    return found


def reasons(twin: Twin) -> list[str]:
    return [event.reason for event in twin.events]


def test_an_object_becomes_a_job_once_it_cannot_vanish() -> None:
    twin = Twin()
    uid = twin.create(spec=ELASTIC)
    first = twin.turn()
    (one,) = first
    assert isinstance(one, AddFinalizer) and one.replicas == 4
    assert not twin.jobs
    twin.converge()
    (job,) = twin.jobs.values()
    assert (job.spec.uid, job.spec.min_nodes, job.spec.max_nodes) == (uid, 1, 4)
    assert job.spec.owner == f"kubernetes/{IDENTITY}/team/x"
    found = twin.object(uid)
    assert found.spec is not None and found.spec.replicas == 4
    assert (found.status.phase, found.status.job, found.status.size) == ("Pending", "team.x", "0/4")
    assert found.status.selector == "elasticd.dev/job=team.x"
    assert conditions(twin, uid) == {"Waiting"}
    assert reasons(twin) == ["Submitted"]


def test_a_world_becomes_status_condition_and_one_event() -> None:
    twin, uid = started()
    status = twin.object(uid).status
    assert (status.phase, status.size, status.replicas, status.generation) == (
        *("Running", "4/4", 4),
        1,
    )
    assert conditions(twin, uid) == {"Running"}
    assert reasons(twin) == ["Submitted", "WorldFormed"]
    twin.form("team.x", ["n0", "n1"], Reason.NODE_LOST)
    twin.now_s += STATUS_EVERY_S
    twin.converge()
    assert reasons(twin)[2:] == ["WorldChanged"] and twin.events[-1].is_warning
    assert "Generation 2 with 2 nodes, 2 ranks: node_lost" in twin.events[-1].message


def test_an_operator_that_starts_now_tells_nothing_twice() -> None:
    twin, _uid = started()
    twin.memory = replace(twin.memory, objects={})
    assert twin.decide() == ()
    twin.form("team.x", ["n0"])
    twin.memory = replace(twin.memory, objects={})
    assert [type(action) for action in twin.decide()] == [TellEvent, ApplyStatus]


def test_status_is_written_at_once_for_a_phase_and_seldom_for_the_rest() -> None:
    twin, uid = started()
    twin.jobs["team.x"] = replace(twin.jobs["team.x"], step=7)
    assert twin.turn(STATUS_EVERY_S - 1.0) == ()
    assert [type(action) for action in twin.turn()] == [ApplyStatus] or twin.turn(1.0)
    assert twin.object(uid).status.step == 7
    twin.jobs["team.x"] = replace(twin.jobs["team.x"], step=8)
    twin.end("team.x")
    twin.turn()
    assert twin.object(uid).status.phase == "Succeeded"
    assert conditions(twin, uid) == {"Complete"}


def test_replicas_are_a_wish_and_the_range_is_kept() -> None:
    twin, uid = started()
    twin.edit(uid, replicas=2)
    assert WriteWant in {type(action) for action in twin.converge()}
    assert twin.jobs["team.x"].wanted_nodes == 2
    twin.agents_run()
    twin.now_s += STATUS_EVERY_S
    twin.converge()
    assert twin.object(uid).status.size == "2/2"
    twin.edit(uid, replicas=9)
    twin.converge()
    assert twin.jobs["team.x"].wanted_nodes == 2, "the last good size stays"
    assert conditions(twin, uid) == {"Running", "Invalid"}
    assert "replicas 9 is outside" in condition(twin, uid, "Invalid").message
    twin.edit(uid, replicas=4)
    twin.converge()
    assert twin.jobs["team.x"].wanted_nodes == 4 and conditions(twin, uid) == {"Running"}


def test_all_nodes_are_no_wish_so_that_others_may_have_one() -> None:
    twin, _ = started()
    assert twin.jobs["team.x"].wants == {}


def test_with_a_policy_replicas_show_what_the_autoscaler_wants() -> None:
    twin, uid = started({**ELASTIC, "autoscale": {"policy": POLICY}})
    assert policy_in(twin).uid == uid
    wants = {"autoscaler": Want(writer="autoscaler", nodes=3)}
    twin.jobs["team.x"] = replace(twin.jobs["team.x"], wants=wants)
    twin.converge()
    assert spec_of(twin, uid).replicas == 3
    assert "ReplicasUndone" not in reasons(twin)
    for count in (1, 2):
        twin.edit(uid, replicas=1)
        twin.converge()
        assert spec_of(twin, uid).replicas == 3
        assert reasons(twin).count("ReplicasUndone") == count
    assert twin.jobs["team.x"].wanted_nodes == 3


def test_what_was_applied_and_is_not_seen_yet_is_no_edit() -> None:
    twin, uid = started({**ELASTIC, "autoscale": {"policy": POLICY}})
    stale = twin.see().jobs
    wants = {"autoscaler": Want(writer="autoscaler", nodes=3)}
    twin.jobs["team.x"] = replace(twin.jobs["team.x"], wants=wants)
    twin.turn()
    before, twin.objects[uid]["spec"]["replicas"] = twin.objects[uid]["spec"]["replicas"], 4
    twin.objects[uid]["metadata"]["generation"] = stale[uid].generation
    assert (before, twin.decide()) == (3, ())


def test_a_policy_is_changed_and_taken_back_with_its_field() -> None:
    twin, uid = started({**ELASTIC, "autoscale": {"policy": POLICY}})
    before = policy_in(twin)
    twin.edit(uid, autoscale={"policy": POLICY + "tolerance = 0.3\n"})
    twin.converge()
    after = policy_in(twin)
    assert after.target is not None and after.target.tolerance == 0.3 and after != before
    twin.edit(uid, autoscale=None)
    twin.converge()
    assert twin.jobs["team.x"].policy is None


def test_a_policy_of_a_person_is_left_alone() -> None:
    twin, _ = started()
    other, _uid = started({**ELASTIC, "autoscale": {"policy": POLICY}})
    policy = replace(policy_in(other), unknown={}, set_by="ada@x1")
    twin.jobs["team.x"] = replace(twin.jobs["team.x"], policy=policy)
    assert twin.converge() == []


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"nodes": 3},
        {"script": "a.py", "module": "b"},
        {"script": "a.py", "nodes": {"min": 3, "max": 1}},
        {"script": "a.py", "autoscale": {"policy": "["}},
    ],
)
def test_what_is_wrong_is_said_and_never_submitted(spec: Any) -> None:
    twin = Twin()
    uid = twin.create()
    twin.objects[uid]["spec"] = spec
    twin.converge()
    assert not twin.jobs
    assert twin.object(uid).status.phase == "Invalid" and conditions(twin, uid) == {"Invalid"}
    assert reasons(twin) == ["Invalid"]
    twin.edit(uid, **{**dict.fromkeys(spec), "script": "a.py"})
    twin.converge()
    assert len(twin.jobs) == 1 and conditions(twin, uid) == {"Waiting"}


def test_a_field_that_is_fixed_and_was_changed_is_named_and_the_job_goes_on() -> None:
    twin, uid = started()
    twin.edit(uid, args=["--lr", "1"], nodes={"min": 2, "max": 4})
    twin.converge()
    message = condition(twin, uid, "Invalid").message
    assert message.startswith("spec.args, spec.nodes cannot be changed while the job stands")
    assert conditions(twin, uid) == {"Running", "Invalid"}
    assert twin.jobs["team.x"].spec.args == ()


@pytest.mark.parametrize(("count", "most"), [(3, 4), (200, 130)])
def test_many_jobs_that_train_do_not_flood_the_api_server(count: int, most: int) -> None:
    """Their steps change all the time, and each status is a write to Kubernetes' etcd."""
    twin = Twin()
    for number in range(count):
        twin.create(f"x{number}", spec=SCRIPT)
    twin.node("n0")
    twin.converge()
    twin.agents_run()
    twin.converge()
    written = 0
    for turn in range(120):
        for name, found in twin.jobs.items():
            twin.jobs[name] = replace(found, step=turn + 1)
        actions = twin.turn()
        if turn >= 60:
            written += sum(isinstance(action, ApplyStatus) for action in actions)
    assert 0 < written <= most / 10 * 60


def test_a_deleted_object_goes_when_its_job_has_stopped_and_nobody_serves_it() -> None:
    twin, uid = started()
    twin.delete(uid)
    assert StopJob in {type(action) for action in twin.converge()}
    assert twin.object(uid).status.phase == "Stopping"
    twin.agents_run()
    twin.converge()
    assert uid in twin.objects, "workers still save"
    twin.agents_run()
    twin.converge()
    assert uid not in twin.objects


def test_a_deleted_object_stays_while_it_is_not_known_that_its_job_is_over() -> None:
    """What is active and what stands of a job come by two watches, in any order."""
    twin, uid = started()
    name = "team.x"
    twin.jobs[name] = replace(twin.jobs[name], is_active=False, members=())
    assert not twin.jobs[name].status.phase.is_final
    twin.delete(uid)
    twin.converge()
    assert uid in twin.objects
    twin.jobs[name] = replace(twin.jobs[name], is_active=True)
    assert StopJob in {type(action) for action in twin.converge()}
    twin.agents_run()
    twin.converge()
    assert uid not in twin.objects


def test_a_deleted_object_waits_for_etcd_unless_by_force() -> None:
    twin, uid = started()
    twin.is_etcd_away = True
    twin.delete(uid)
    twin.converge()
    assert uid in twin.objects and reasons(twin)[-1] == "DeletionWaits"
    twin.delete(uid, force=True)
    twin.converge()
    assert uid not in twin.objects
    twin.is_etcd_away = False
    twin.converge()
    assert twin.jobs["team.x"].is_stop_wanted, "the job without an object is stopped"


def test_what_is_known_to_be_over_needs_no_etcd_to_be_deleted() -> None:
    twin, uid = started()
    twin.end("team.x")
    twin.converge()
    twin.is_etcd_away = True
    twin.delete(uid)
    twin.converge()
    assert uid not in twin.objects


def test_an_object_deleted_before_it_was_submitted_goes_at_once() -> None:
    twin = Twin()
    uid = twin.create(finalizers=["elasticd.dev/job"])
    twin.delete(uid)
    assert [type(action) for action in twin.turn()] == [RemoveFinalizer]
    assert not twin.objects and not twin.jobs


def test_another_finalizer_is_none_of_ours() -> None:
    twin = Twin()
    uid = twin.create(finalizers=["somebody/else"])
    twin.delete(uid)
    assert twin.decide() == ()


@pytest.mark.parametrize("is_over", [False, True])
def test_a_deleted_object_that_another_finalizer_keeps_does_not_train(is_over: bool) -> None:
    """Ours is gone, as somebody took it out, or as the job was over before etcd was restored."""
    twin, uid = started()
    backup = twin.jobs["team.x"]
    if is_over:
        twin.end("team.x")
        twin.converge()
    twin.delete(uid)
    twin.objects[uid]["metadata"]["finalizers"] = ["somebody/else"]
    twin.converge()
    twin.jobs["team.x"] = backup
    assert StopJob in {type(action) for action in twin.converge()}
    for _ in range(3):
        twin.agents_run()
        twin.converge()
    assert twin.jobs["team.x"].status.phase is Phase.STOPPED and uid in twin.objects
    assert twin.object(uid).finalizers == ("somebody/else",)
    assert twin.object(uid).status.phase == ("Succeeded" if is_over else "Stopped")


def test_an_object_waits_for_etcd_and_says_so() -> None:
    twin = Twin(is_etcd_away=True)
    uid = twin.create()
    twin.converge()
    assert condition(twin, uid, "Waiting").reason == "EtcdAway" and not twin.jobs
    twin.is_etcd_away = False
    twin.converge()
    assert len(twin.jobs) == 1


def test_before_etcd_was_read_an_operator_that_starts_says_nothing_of_it() -> None:
    twin = Twin(is_etcd_read=False)
    twin.create(finalizers=["elasticd.dev/job"])
    twin.delete(twin.create("y", finalizers=["elasticd.dev/job"]))
    assert twin.decide() == ()
    twin.is_etcd_read = True
    assert len(twin.converge()) > 2


def test_etcd_away_changes_no_status_of_a_job_that_ran() -> None:
    twin, uid = started()
    twin.is_etcd_away = True
    twin.now_s += 60.0
    assert twin.converge() == []
    assert twin.object(uid).status.phase == "Running"


def test_what_was_submitted_and_has_no_record_is_not_run_again() -> None:
    twin, uid = started()
    kept = twin.jobs.pop("team.x")
    twin.converge()
    assert not twin.jobs and twin.object(uid).status.phase == "Lost"
    assert "delete the object" in twin.object(uid).status.message
    assert (twin.object(uid).status.replicas, twin.object(uid).status.size) == (0, "0/4")
    twin.jobs["team.x"] = kept
    twin.converge()
    assert twin.object(uid).status.phase == "Running"


def test_what_was_over_stays_over_without_its_records() -> None:
    twin, uid = started()
    twin.end("team.x")
    twin.converge()
    del twin.jobs["team.x"]
    assert twin.converge() == []
    assert conditions(twin, uid) == {"Complete"}


def test_what_was_over_does_not_run_again_after_etcd_was_restored_from_a_backup() -> None:
    """The records of the backup say that it trains, and its agents begin anew."""
    twin, uid = started()
    backup = twin.jobs["team.x"]
    twin.end("team.x")
    twin.converge()
    twin.jobs["team.x"] = backup
    (stop,) = twin.converge()
    assert isinstance(stop, StopJob) and stop.gone is None and "restored" in stop.why
    assert conditions(twin, uid) == {"Complete"} and twin.object(uid).status.phase == "Succeeded"
    twin.agents_run()
    assert twin.jobs["team.x"].status.phase is Phase.STOPPED
    assert twin.converge() == [] and conditions(twin, uid) == {"Complete"}


def standing(uid: str, **more: Any) -> JobRecords:
    spec = JobSpec(name=JobName("team.x"), uid=uid, entry_kind=EntryKind.SCRIPT, entry="a.py")
    return JobRecords(spec=replace(spec, **more), status=JobStatus(phase=Phase.RUNNING))


def test_a_name_that_another_job_has_is_not_waited_for() -> None:
    twin = Twin()
    twin.jobs["team.x"] = standing("a-person's")
    uid = twin.create()
    twin.converge()
    (name,) = twin.jobs.keys() - {"team.x"}
    assert name.startswith("team.x-") and twin.object(uid).status.job == name
    assert not any(isinstance(action, StopJob) for action in twin.done)


def test_beside_jobs_of_another_kubernetes_cluster_nothing_is_submitted() -> None:
    """The agents of both would serve them, and neither cluster would have its nodes."""
    twin, first = started()
    twin.jobs["team.z"] = standing("another-cluster's", owner="kubernetes/cluster-10/team/z")
    uid = twin.create("y")
    twin.converge()
    assert set(twin.jobs) == {"team.x", "team.z"}
    waiting = condition(twin, uid, "Waiting")
    assert waiting.reason == "OtherCluster" and "Job team.z" in waiting.message
    assert "cluster-10" in waiting.message and "--cluster" in waiting.message
    assert not twin.jobs["team.z"].is_stop_wanted
    assert twin.object(first).status.phase == "Running"
    twin.delete(first)
    assert StopJob in {type(action) for action in twin.converge()}, "its own is looked after"
    twin.jobs["team.z"] = replace(twin.jobs["team.z"], is_active=False)
    twin.converge()
    assert twin.object(uid).status.job == "team.y"


def test_the_records_of_an_older_job_that_is_over_give_way() -> None:
    twin = Twin()
    over = JobStatus(phase=Phase.FAILED)
    twin.jobs["team.x"] = replace(standing("old"), status=over, is_active=False)
    uid = twin.create()
    twin.converge()
    assert twin.jobs["team.x"].spec.uid == uid


@pytest.mark.parametrize(
    ("owner", "is_stopped"),
    [("kubernetes/cluster-1/team/y", True), ("kubernetes/cluster-10/team/y", False), ("", False)],
)
def test_jobs_without_an_object_are_stopped_if_they_were_of_one_of_ours(
    owner: str, is_stopped: bool
) -> None:
    twin = Twin()
    twin.jobs["team.x"] = standing("gone", owner=owner)
    twin.converge()
    assert twin.jobs["team.x"].is_stop_wanted is is_stopped
    stops = [action for action in twin.done if isinstance(action, StopJob)]
    keys = [JobKey(namespace="team", name="y", uid="gone")] if is_stopped else []
    assert [stop.gone for stop in stops] == keys, "the API server is asked itself"


def test_a_refusal_of_the_submission_stands_in_the_status() -> None:
    twin = Twin()
    uid = twin.create(finalizers=["elasticd.dev/job"])
    (write,) = (action for action in twin.decide() if isinstance(action, WriteJob))
    twin.memory = refused(twin.memory, write, "etcd takes no more: its quota is used up.")
    (status,) = (a.status for a in twin.decide() if isinstance(a, ApplyStatus))
    waiting = status.condition("Waiting")
    assert waiting is not None and waiting.message == "etcd takes no more: its quota is used up."
    twin.converge()
    assert condition(twin, uid, "Waiting").reason == "FirstWorld"


def test_a_deadline_stops_the_job_which_has_failed_then() -> None:
    twin, uid = started({**ELASTIC, "activeDeadlineSeconds": 300})
    twin.now_s += 250.0
    assert not any(isinstance(action, StopJob) for action in twin.converge())
    twin.now_s += 300.0
    twin.converge()
    twin.agents_run()
    twin.converge()
    failed = condition(twin, uid, "Failed")
    assert (failed.status, failed.reason) == ("True", "DeadlineExceeded")
    assert failed.message == f"It was stopped: {DEADLINE_WHY}."


def test_a_job_that_a_person_stopped_has_failed_as_stopped() -> None:
    twin, uid = started()
    wants = {"user": Want(writer="user", is_stop=True, why="enough")}
    twin.jobs["team.x"] = replace(twin.jobs["team.x"], wants=wants)
    twin.converge()
    assert "enough" in twin.object(uid).status.message
    twin.agents_run()
    twin.converge()
    assert twin.object(uid).status.phase == "Stopped" and conditions(twin, uid) == {"Failed"}


def test_a_finished_object_goes_after_its_time() -> None:
    twin, uid = started({**ELASTIC, "ttlSecondsAfterFinished": 30})
    twin.end("team.x")
    twin.converge()
    twin.now_s += 20.0
    twin.converge()
    assert uid in twin.objects
    twin.now_s += 20.0
    twin.converge()
    assert uid not in twin.objects and not any(isinstance(a, StopJob) for a in twin.done)


def test_a_finalizer_that_somebody_removed_comes_back() -> None:
    twin, uid = started()
    twin.objects[uid]["metadata"]["finalizers"] = []
    assert [type(action) for action in twin.converge()] == [AddFinalizer]


def test_the_phase_of_a_newer_version_ends_nothing() -> None:
    twin, uid = started()
    status = replace(twin.jobs["team.x"].status, phase=Phase.OTHER)
    twin.jobs["team.x"] = replace(twin.jobs["team.x"], status=status)
    twin.converge()
    assert twin.object(uid).status.phase == "Running"
    twin.objects[uid]["status"]["phase"] = "Dreaming"
    twin.now_s += STATUS_EVERY_S
    twin.converge()
    assert twin.object(uid).status.phase == "Running"


def test_a_world_is_told_once_and_at_once_while_the_status_waits_for_its_turn() -> None:
    twin, uid = started()
    twin.jobs["team.x"] = replace(twin.jobs["team.x"], step=1)
    twin.turn(1.0)
    twin.turn(1.0)
    for nodes in (["n0", "n1"], ["n0"]):
        twin.form("team.x", nodes, Reason.NODE_LOST)
        for _ in range(3):
            twin.turn(0.1)
    assert twin.object(uid).status.generation == 1, "it was written a moment ago"
    assert reasons(twin).count("WorldChanged") == 2


def test_the_same_refusal_is_told_once_though_the_status_is_not_seen_yet() -> None:
    twin = Twin()
    uid = twin.create(spec={"script": "a", "module": "b"})
    stale = dict(twin.objects[uid])
    for _ in range(3):
        twin.turn(0.1)
        twin.objects[uid] = {**stale, "metadata": dict(stale["metadata"]), "status": {}}
    assert reasons(twin) == ["Invalid"]


def test_a_policy_takes_the_wish_of_the_operator_back() -> None:
    """It would go before that of the autoscaler."""
    twin, uid = started()
    twin.edit(uid, replicas=2)
    twin.converge()
    twin.edit(uid, autoscale={"policy": POLICY})
    twin.converge()
    want = twin.jobs["team.x"].own_want
    assert want is not None and want.nodes is None
    assert spec_of(twin, uid).replicas == twin.jobs["team.x"].wanted_nodes == 4


def test_a_policy_that_goes_takes_no_size_along() -> None:
    """Between the two writes the job would grow to as many nodes as it may have."""
    twin, uid = started({**ELASTIC, "autoscale": {"policy": POLICY}})
    found = twin.jobs["team.x"]
    wants = {"autoscaler": Want(writer="autoscaler", nodes=2)}
    twin.jobs["team.x"] = replace(found, wants=wants)
    twin.converge()
    twin.edit(uid, autoscale=None)
    sizes = set()
    seen = twin.see()
    for action in decide(seen, now_s=twin.now_s, now_unix_s=twin.now_unix_s):
        twin.perform(action)
        sizes.add(twin.jobs["team.x"].wanted_nodes)
    assert sizes == {2}
    assert twin.jobs["team.x"].policy is None
