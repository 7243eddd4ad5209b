"""Writes to objects that are gone: each is outdated, and none is a refusal that alarms somebody."""

from collections.abc import Sequence

from elasticd.kube.api.port import ELASTIC_JOBS, Name
from elasticd.kube.decide.action import Action
from elasticd.kube.decide.cluster import ObservedCluster
from elasticd.kube.decide.decide import decide
from elasticd.kube.operator.counts import OperatorCounts
from elasticd.kube.resource.name import FORCE_DELETE
from elasticd.records.codec import encode
from elasticd.store.api import Put, Txn
from tests.fixtures.operator_scene import NAME, NAMESPACE, OperatorScene

REFUSED = 'elasticd_operator_actions_total{action="apply_status",outcome="refused"} 0'


def test_object_that_is_let_go_gets_no_status_afterwards(scene: OperatorScene) -> None:
    """Each deletion of an ElasticJob counted as a refused status, for which operators are told to
    alarm."""
    counts = OperatorCounts()
    scene.create()
    operator = scene.begin(counts=counts)
    scene.converge(operator)
    scene.delete()
    scene.api.calls.clear()
    scene.converge(operator)
    assert scene.get() is None
    assert scene.api.calls[-1] == "patch elasticjobs", "the finalizer goes last"
    assert REFUSED in counts.exposition().decode()


def test_object_whose_time_to_live_was_just_changed_is_not_deleted(scene: OperatorScene) -> None:
    """The watch has not shown that yet: it may be silent for most of a minute."""
    later_s = [0.0]

    def decide_later(seen: ObservedCluster, *, now_s: float, now_unix_s: float) -> Sequence[Action]:
        return decide(seen, now_s=now_s, now_unix_s=now_unix_s + later_s[0])

    scene.create(ttlSecondsAfterFinished=1000)
    operator = scene.begin(decide=decide_later)
    scene.converge(operator)
    scene.end(scene.jobs[0])
    scene.converge(operator)
    scene.api.drop_watches()
    scene.edit({"spec": {"ttlSecondsAfterFinished": None}})
    later_s[0] = 2000.0
    scene.api.calls.clear()
    operator.evaluate()
    assert "delete elasticjobs" in scene.api.calls
    assert not (scene.get() or {})["metadata"].get("deletionTimestamp")
    scene.api.resume_watches()
    scene.converge(operator)
    assert not (scene.get() or {})["metadata"].get("deletionTimestamp")


def test_a_record_of_a_newer_version_keeps_an_object_without_a_status(
    scene: OperatorScene,
) -> None:
    """An operator of that version submitted the job, and ended before it wrote the status."""
    scene.create()
    scene.converge(scene.begin())
    (job,) = scene.jobs
    scene.objects.patch(ELASTIC_JOBS, Name(NAMESPACE, NAME), {"status": None}, "status")
    newer = encode(scene.job_status(job)).replace(b'"schema":"1.0"', b'"schema":"99.0"')
    scene.store.commit(Txn(then=(Put(key=scene.keys.status(job), value=newer),)))
    scene.delete()
    operator = scene.begin(scene.elect_anew())
    for _ in range(5):
        operator.evaluate()
        scene.now_s += 20.0
    assert scene.get() is not None and scene.jobs == [job] and not scene.status()
    scene.edit({"metadata": {"annotations": {FORCE_DELETE: "true"}}})
    operator.evaluate()
    assert scene.get() is None and scene.jobs == [job]


def test_write_to_an_object_that_is_gone_is_outdated(scene: OperatorScene) -> None:
    """Somebody took the finalizer out, and the watch has not shown it yet."""
    counts = OperatorCounts()
    scene.create()
    operator = scene.begin(counts=counts)
    scene.converge(operator)
    scene.api.drop_watches()
    scene.edit({"metadata": {"finalizers": None}})
    scene.objects.delete(ELASTIC_JOBS, Name(NAMESPACE, NAME))
    scene.run(scene.jobs[0])
    operator.evaluate()
    said = counts.exposition().decode()
    assert REFUSED in said
    assert 'actions_total{action="apply_status",outcome="outdated"} 1' in said
