"""Writes to objects that are gone: each is outdated, and none is a refusal that alarms somebody."""

from collections.abc import Iterator

import pytest

from elasticd.kube.api.port import ELASTIC_JOBS, Name
from elasticd.kube.operator.counts import OperatorCounts
from tests.fixtures.operator_scene import NAME, NAMESPACE, OperatorScene

REFUSED = 'elasticd_operator_actions_total{action="apply_status",outcome="refused"} 0'


@pytest.fixture
def scene() -> Iterator[OperatorScene]:
    scene = OperatorScene()
    yield scene
    scene.close()


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
