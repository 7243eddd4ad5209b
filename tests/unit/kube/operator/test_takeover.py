"""Two operators, of which one does not reach the API server."""

from contextlib import ExitStack

import pytest

from elasticd.kube.api.memory import MemoryApi
from elasticd.kube.api.port import NAMESPACES, Name
from elasticd.leader import daemon, handover
from tests.fixtures.operator_scene import OperatorScene
from tests.fixtures.store import wait_until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "RETRY_S", 0.01)
    monkeypatch.setattr(handover, "UNABLE_S", 0.05)
    monkeypatch.setattr(handover, "READ_S", 0.02)


def test_operator_that_reaches_the_api_server_takes_over(scene: OperatorScene) -> None:
    """Else no ElasticJob was submitted or stopped until somebody deleted the leader's pod."""
    cut_off = MemoryApi(scene.objects)
    with ExitStack() as stack:
        first = stack.enter_context(scene.running(cut_off))
        wait_until(lambda: first.leads)
        second = stack.enter_context(scene.running())
        cut_off.go_away()
        wait_until(lambda: second.leads and not first.leads)
        scene.create()
        wait_until(lambda: len(scene.jobs) == 1)
        cut_off.come_back()
        scene.create("b")
        wait_until(lambda: len(scene.jobs) == 2)
        assert second.leads and not first.leads


def test_operator_of_another_kubernetes_cluster_does_not_take_over(scene: OperatorScene) -> None:
    """It reaches an API server, but not the one whose jobs are led."""
    other = OperatorScene(store=scene.store)
    other.objects.delete(NAMESPACES, Name("", "kube-system"))
    other.api.create(NAMESPACES, {"metadata": {"name": "kube-system"}})
    with ExitStack() as stack:
        first = stack.enter_context(scene.running())
        wait_until(lambda: first.leads)
        second = stack.enter_context(other.running())
        scene.api.go_away()
        wait_until(lambda: scene.store.get(scene.keys.operator_offer()) is not None)
        other.api.calls.clear()
        wait_until(lambda: other.api.calls.count("list namespaces") > 2)
        assert first.leads and not second.leads
