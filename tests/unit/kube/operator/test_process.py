"""The process of an operator: its thread, its probes, and another one that stands by."""

import http.client
import re
from contextlib import ExitStack, closing

import pytest

from elasticd.kube.api.event import EVENTS
from elasticd.kube.api.port import NAMESPACES, Name
from elasticd.kube.operator.counts import ActionOutcome, OperatorCounts
from elasticd.kube.operator.process import OperatorProcess
from elasticd.kube.resource.name import FORCE_DELETE
from elasticd.leader import daemon
from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.metric import Exporter
from tests.fixtures.operator_scene import OperatorScene
from tests.fixtures.patience import patience_s
from tests.fixtures.store import wait_until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "RETRY_S", 0.01)


def asked(process: OperatorProcess, path: str) -> tuple[int, str]:
    with closing(
        http.client.HTTPConnection("127.0.0.1", process.port, timeout=patience_s(30.0))
    ) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def value(process: OperatorProcess, metric: str, *labels: str) -> float:
    """Return the one series of a metric whose labels have these values."""
    _, text = asked(process, "/metrics")
    wanted = [f'"{label}"' for label in labels]
    lines = [line for line in text.splitlines() if re.match(rf"{metric}[{{ ]", line)]
    (one,) = [line for line in lines if all(label in line for label in wanted)]
    return float(one.rpartition(" ")[2])


def test_a_change_wakes_the_leader_at_once(scene: OperatorScene) -> None:
    """It need not wait for its period; many changes are few looks."""
    with scene.running() as process:
        wait_until(lambda: process.leads)
        for number in range(50):
            scene.create(f"j{number}")
        wait_until(lambda: len(scene.jobs) == 50)
        wait_until(lambda: value(process, "elasticd_operator_jobs", "Pending") == 50)
        wait_until(
            lambda: value(process, "elasticd_operator_actions_total", "write_job", "done") == 50
        )
        assert scene.api.calls.count("patch elasticjobs") == 50


def test_the_one_that_stands_by_takes_over(scene: OperatorScene) -> None:
    """It watches nothing meanwhile, and is ready once etcd has answered it."""
    with ExitStack() as stack:
        with scene.running() as first:
            wait_until(lambda: first.leads)
            wait_until(lambda: value(first, "elasticd_operator_following") == 1)
            second = stack.enter_context(scene.running())
            watches = len(scene.api._watches)
            scene.create("a")
            wait_until(lambda: len(scene.jobs) == 1)
            wait_until(lambda: asked(second, "/readyz")[0] == 200)
            assert not second.leads
            assert value(second, "elasticd_operator_leader") == 0
            assert len(scene.api._watches) == watches
        wait_until(lambda: second.leads)
        scene.create("b")
        wait_until(lambda: len(scene.jobs) == 2)
        wait_until(lambda: value(second, "elasticd_operator_leader") == 1)


def test_an_api_server_that_is_away_makes_it_unready_and_not_unhealthy(
    scene: OperatorScene,
) -> None:
    """To start it again would help nobody."""
    with scene.running() as process:
        wait_until(lambda: value(process, "elasticd_operator_following") == 1)
        assert asked(process, "/readyz") == (200, "ok\n")
        scene.api.go_away()
        code, text = asked(process, "/readyz")
        assert code == 503 and "away" in text
        assert asked(process, "/healthz")[0] == 200
        scene.api.come_back()
        wait_until(lambda: asked(process, "/readyz")[0] == 200)


def test_operators_of_two_kubernetes_clusters_on_one_etcd_say_so(scene: OperatorScene) -> None:
    """One that stands by behind another cluster's would look ready for ever, and serve nobody."""
    with ExitStack() as stack:
        first = stack.enter_context(scene.running())
        wait_until(lambda: first.leads)
        scene.create("a")
        wait_until(lambda: len(scene.jobs) == 1)
        other = OperatorScene(store=scene.store)
        other.objects.delete(NAMESPACES, Name("", "kube-system"))
        other.api.create(NAMESPACES, {"metadata": {"name": "kube-system"}})
        second = stack.enter_context(other.running())
        wait_until(lambda: asked(second, "/readyz")[0] == 503)
        wait_until(lambda: "another Kubernetes cluster" in asked(second, "/readyz")[1])
        assert "--cluster" in asked(second, "/readyz")[1]
        assert asked(second, "/healthz")[0] == 200 and asked(first, "/readyz")[0] == 200
        other.create("b")
        first.stop()
        wait_until(lambda: second.leads)
        wait_until(lambda: "Job team.a" in asked(second, "/readyz")[1])
        wait_until(lambda: "Job team.a" in other.status("b").get("message", ""))
        assert scene.jobs == ["team.a"]


def test_an_etcd_that_is_away_makes_it_unready(scene: OperatorScene) -> None:
    """From its lease's end on it does not lead, and says why."""
    scene.store.go_away()
    with scene.running() as process:
        wait_until(lambda: scene.store is not None and not process.leads)
        scene.store.come_back()
        wait_until(lambda: process.leads)
        wait_until(lambda: asked(process, "/readyz")[0] == 200)


def test_while_etcd_is_away_objects_are_told_so_and_go_by_force(scene: OperatorScene) -> None:
    """Else whoever deletes a namespace in that time waits for a finalizer that nobody takes."""
    with scene.running(ttl_s=0.3) as process:
        scene.create("a")
        scene.create("b")
        wait_until(lambda: len(scene.jobs) == 2 and bool(scene.status("b").get("job")))
        scene.store.go_away()
        wait_until(lambda: not process.leads)
        scene.create("c")
        scene.edit({"metadata": {"annotations": {FORCE_DELETE: "true"}}}, "a")
        scene.delete("a")
        scene.delete("b")
        wait_until(lambda: scene.get("a") is None)
        events = scene.objects.items
        wait_until(lambda: any(one["reason"] == "DeletionWaits" for one in events(EVENTS)))
        wait_until(lambda: "etcd does not answer" in scene.status("c").get("message", ""))
        assert scene.get("b") is not None
        assert value(process, "elasticd_operator_leader") == 0
        scene.store.come_back()
        wait_until(lambda: scene.get("b") is None and scene.jobs == ["team.c"])


def test_an_operator_that_ends_gives_its_watches_back(scene: OperatorScene) -> None:
    """And the election."""
    with scene.running() as process:
        wait_until(lambda: value(process, "elasticd_operator_following") == 1)
    assert not scene.api._watches
    assert scene.store.get(scene.keys.operator_election()) is None


def test_every_series_is_there_from_the_beginning() -> None:
    """An alert on a series that is not there yet never fires."""
    counts = OperatorCounts()
    text = counts.exposition().decode()
    assert all(f"# TYPE {m.name} " in text for m in CATALOG if m.exporter is Exporter.OPERATOR)
    counts.leads(True)
    assert "\nelasticd_operator_leader 1\n" in counts.exposition().decode()
    assert "\nelasticd_operator_leader 0\n" in counts.exposition(is_alive=False).decode()
    counts.acted("apply_status", ActionOutcome.REFUSED)
    for code in (0, 200, 201, 404, 429, 500, 301):
        counts.asked(code)
    text = counts.exposition().decode()
    assert 'actions_total{action="apply_status",outcome="refused"} 1' in text
    for answer, number in (("success", 2), ("refused", 2), ("failed", 2), ("none", 1)):
        assert f'api_requests_total{{answer="{answer}"}} {number}' in text
