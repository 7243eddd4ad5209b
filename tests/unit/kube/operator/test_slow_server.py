"""One operator on an API server that answers slowly, or fails about some of the objects."""

import threading
from typing import Any

import pytest

from elasticd.errors import Unavailable
from elasticd.kube.api.failure import Busy, failure
from elasticd.kube.api.memory import MemoryApi
from elasticd.kube.api.port import ELASTIC_JOBS, NODES, Name
from elasticd.kube.operator.write import action_threads
from elasticd.records.ids import NodeId
from tests.fixtures.operator_scene import OperatorScene
from tests.fixtures.recorder import LIMIT_S
from tests.fixtures.store import wait_until


def cordon(scene: OperatorScene, node: str) -> None:
    scene.objects.patch(NODES, Name("", node), {"spec": {"unschedulable": True}})
    scene.api.hand_out()


class Stuck(MemoryApi):
    """Answers no write until it may."""

    may_answer = threading.Event()

    def patch(self, *args: Any, **more: Any) -> Any:
        self.may_answer.wait(2 * LIMIT_S)
        return super().patch(*args, **more)


def test_identity_is_not_asked_for_sooner_than_the_server_says(scene: OperatorScene) -> None:
    """As for all that it is asked: it may answer 429 because many clients come back at once."""

    class BusyApi(MemoryApi):
        def list(self, kind: Any, **chosen: Any) -> Any:
            found = super().list(kind, **chosen)
            if len(self.calls) < 2:
                raise Busy("There is too much to do.", 30.0)
            return found

    api = BusyApi(scene.objects)
    operator = scene.begin(api=api)
    for _ in range(29):
        operator.evaluate()
        scene.now_s += 1.0
    assert api.calls == ["list namespaces"]
    scene.now_s += 2.0
    operator.evaluate()
    assert api.calls == ["list namespaces"] * 2


def test_a_node_that_goes_does_not_wait_for_a_slow_api_server(scene: OperatorScene) -> None:
    """Its machine may end in half a minute, and a drain is written to etcd alone."""
    api = scene.api = Stuck(scene.objects)
    for number in range(20):
        scene.create(f"a{number}")
    scene.node("n1")
    cordon(scene, "n1")
    operator = scene.begin()
    look = threading.Thread(target=operator.evaluate)
    look.start()
    key = scene.keys.drain(NodeId("n1"))
    try:
        wait_until(lambda: scene.store.get(key) is not None)
    finally:
        api.may_answer.set()
        look.join()


class Hung(Stuck):
    """Answers no write to the objects of a name, as with a webhook of one namespace that hangs."""

    def patch(self, kind: Any, seen: Any, *args: Any, **more: Any) -> Any:
        self.calls.append(f"patch {seen['metadata']['name']}")
        write = super().patch if seen["metadata"]["name"].startswith("bad") else self._at_once
        return write(kind, seen, *args, **more)

    def _at_once(self, *args: Any, **more: Any) -> Any:
        return MemoryApi.patch(self, *args, **more)


def test_writes_that_hang_wait_alone(scene: OperatorScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than a look has threads; each is begun once, however many looks there are."""
    monkeypatch.setattr(action_threads, "LOOK_S", 1.0)
    api = scene.api = Hung(scene.objects)
    api.may_answer = threading.Event()
    for number in range(20):
        scene.create(f"bad{number}")
    operator = scene.begin()
    try:
        operator.evaluate()
        scene.create("good")
        for _ in range(100):
            operator.evaluate()
            scene.now_s += 1.0
            if scene.jobs:
                break
        assert scene.jobs == ["team.good"]
        begun = [call for call in api.calls if call.startswith("patch bad")]
        assert len(begun) == len(set(begun))
        woken = scene.wakes
    finally:
        api.may_answer.set()
    wait_until(lambda: scene.wakes > woken)
    for _ in range(100):
        operator.evaluate()
        scene.now_s += 1.0
        if len(scene.jobs) == 21:
            break
    assert len(scene.jobs) == 21


class Slow(MemoryApi):
    """Takes four seconds for each write, by the operator's clock."""

    scene: OperatorScene

    def patch(self, *args: Any, **more: Any) -> Any:
        self.scene.now_s += 4.0
        return super().patch(*args, **more)


def test_a_look_on_a_slow_api_server_ends_in_time_and_the_next_one_goes_on(
    scene: OperatorScene,
) -> None:
    """A thread that is at one look for a minute loses its lead, and its probe ends it."""
    api = scene.api = Slow(scene.objects)
    api.scene = scene
    for number in range(60):
        scene.create(f"a{number}")
    operator = scene.begin()
    before_s = scene.now_s
    assert operator.evaluate() == 0.0
    assert scene.now_s < before_s + 60.0
    for _ in range(60):
        operator.evaluate()
        scene.now_s += 2.0
    assert len(scene.jobs) == 60


class Webhook(MemoryApi):
    """Fails about the objects of a name, as with an admission webhook that does not answer."""

    def patch(self, kind: Any, seen: Any, change: Any, *, subresource: str = "") -> Any:
        if seen["metadata"]["name"].startswith("bad"):
            self.calls.append("failed")
            raise failure(500, b"failed calling webhook", {}, host="here", what="patch it")
        return super().patch(kind, seen, change, subresource=subresource)


def test_a_failure_about_some_objects_holds_up_no_other(scene: OperatorScene) -> None:
    """The webhook may be that of another team's namespace."""
    scene.api = Webhook(scene.objects)
    for number in range(40):
        scene.create(f"bad{number}")
    scene.create("good")
    operator = scene.begin()
    for _ in range(100):
        operator.evaluate()
        scene.now_s += 1.0
    assert scene.jobs == ["team.good"]
    assert 40 * 2 <= scene.api.calls.count("failed") < 40 * 40


class Faulty(MemoryApi):
    """Breaks in our own code about one object."""

    def apply(self, kind: Any, body: Any, *, subresource: str = "") -> Any:
        if body["metadata"]["name"] == "bad":
            raise UnicodeEncodeError("utf-8", "\ud83d", 0, 1, "surrogates not allowed")
        return super().apply(kind, body, subresource=subresource)


def test_a_status_that_cannot_be_written_holds_up_no_other(scene: OperatorScene) -> None:
    """Whatever our own code makes of it."""
    scene.api = Faulty(scene.objects)
    scene.create("bad")
    scene.create("good")
    operator = scene.begin()
    scene.converge(operator)
    assert scene.status("good")["job"] == "team.good"
    assert not scene.status("bad")


class Unlisted(MemoryApi):
    """Answers no question for one ElasticJob."""

    is_silent = False

    def list(self, kind: Any, **more: Any) -> Any:
        if self.is_silent and kind == ELASTIC_JOBS:
            raise Unavailable("The API server does not answer.")
        return super().list(kind, **more)


def test_an_orphan_that_cannot_be_asked_for_does_not_hold_up_etcd(scene: OperatorScene) -> None:
    """It is the API server that does not answer."""
    api = scene.api = Unlisted(scene.objects)
    scene.node("n1")
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    scene.edit({"metadata": {"finalizers": None}})
    scene.delete()
    api.is_silent = True
    for _ in range(20):
        operator.evaluate()
        scene.now_s += 1.0
    assert scene.jobs, "what was seen of the object may be old"
    cordon(scene, "n1")
    operator.evaluate()
    assert scene.store.get(scene.keys.drain(NodeId("n1"))) is not None
    api.is_silent = False
    scene.now_s += 60.0
    scene.converge(operator)
    assert not scene.jobs


def test_a_job_that_ended_before_etcds_watch_showed_it_is_not_run_again(
    scene: OperatorScene,
) -> None:
    """What runs twice does more harm than what does not run."""
    scene.create()
    operator = scene.begin()
    operator.evaluate()
    scene.now_s += 1.0
    scene.store.drop_watches()
    operator.evaluate()
    (job,) = scene.jobs
    scene.end(job)
    for _ in range(5):
        scene.now_s += 10.0
        operator.evaluate()
    assert not scene.jobs
    scene.store.resume_watches()
    scene.now_s += 60.0
    scene.converge(operator)
    assert scene.status()["phase"] == "Succeeded"
