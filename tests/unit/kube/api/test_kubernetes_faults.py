"""Our own list-and-watch against a server with the faults of real ones, on loopback."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticd.errors import (
    ElasticdError,
    EnvironmentProblem,
    NotFound,
    NotSupported,
    Refused,
    Unavailable,
)
from elasticd.kube.api import connection as connection_module
from elasticd.kube.api import watch as watch_module
from elasticd.kube.api.backoff import Backoff
from elasticd.kube.api.connection import open_connection
from elasticd.kube.api.failure import Busy, Failed, Unreached
from elasticd.kube.api.kubernetes_api import KubernetesApi
from elasticd.kube.api.port import ELASTIC_JOBS, NODES, Changed, ResourceList
from elasticd.kube.api.watch import WatchTimes
from elasticd.store.private_etcd.embedded import free_port
from tests.fixtures.api_server import ApiServer, Refusal, job_of_size
from tests.fixtures.kube_backend import QUICK
from tests.fixtures.store import wait_until
from tests.fixtures.tcp_proxy import TcpProxy


class Told:
    """What a watch told."""

    def __init__(self) -> None:
        self.events: list[ResourceList | Changed] = []

    def __call__(self, event: ResourceList | Changed) -> None:
        self.events.append(event)

    @property
    def listings(self) -> int:
        return sum(isinstance(event, ResourceList) for event in self.events)

    @property
    def replicas(self) -> int | None:
        """Of the object, as the newest event tells it."""
        last = self.events[-1] if self.events else None
        item = last.items[0] if isinstance(last, ResourceList) and last.items else None
        item = last.item if isinstance(last, Changed) else item
        return item["spec"]["replicas"] if item is not None else None


def change(server: ApiServer, replicas: int) -> None:
    name = server.objects.items(ELASTIC_JOBS)[0]["metadata"]["name"]
    assert name == "a"
    server.objects.apply(ELASTIC_JOBS, job_of_size(replicas))


@pytest.fixture
def told(server: ApiServer) -> Iterator[Told]:
    """A watch that has listed."""
    told = Told()
    watch = KubernetesApi(server.connection(), QUICK).watch(ELASTIC_JOBS, told)
    wait_until(lambda: server.requests("GET", watch=True) > 0)
    yield told
    watch.close()


def test_a_line_that_is_cut_comes_again_whole(server: ApiServer, told: Told) -> None:
    """The half of it is no event, and nothing needs to be listed again."""
    server.cuts = 2
    change(server, 2)
    wait_until(lambda: told.replicas == 2)
    change(server, 3)
    wait_until(lambda: told.replicas == 3)
    assert told.listings == 1 and server.cuts == 0


def test_a_watch_that_ends_in_order_goes_on_from_its_bookmark(
    server: ApiServer, told: Told
) -> None:
    """Other kinds changed meanwhile: the version of the last bookmark is a newer one."""
    server.objects.create(NODES, {"metadata": {"name": "x"}})
    newest = server.objects.version
    wait_until(lambda: server.asked[-1][2].get("resourceVersion") == str(newest))
    assert told.listings == 1


def test_a_silent_watch_is_given_up_and_everything_is_listed_again(server: ApiServer) -> None:
    """It neither ends nor tells of a change: nobody knows what was missed."""
    told = Told()
    impatient = replace(QUICK, silence_s=0.5)
    watch = KubernetesApi(server.connection(), impatient).watch(ELASTIC_JOBS, told)
    wait_until(lambda: server.requests("GET", watch=True) > 0)
    server.is_mute = True
    change(server, 2)
    wait_until(lambda: told.replicas == 2 and told.listings > 1)
    watch.close()


def test_a_forgotten_version_is_listed_again(server: ApiServer, told: Told) -> None:
    """410 Gone, as an event of a watch that had begun."""
    server.objects.compact()
    wait_until(lambda: told.listings > 1)
    change(server, 2)
    wait_until(lambda: told.replicas == 2)


def test_a_forgotten_version_as_an_answer_is_listed_again(server: ApiServer, told: Told) -> None:
    """410 Gone, as the HTTP status of a watch that would begin."""
    server.refusals.append(Refusal(410))
    wait_until(lambda: told.listings > 1)


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_server_in_trouble_is_asked_again_after_a_while(
    server: ApiServer, told: Told, code: int
) -> None:
    """As long as it lasts the watch says what is wrong; then it follows again."""
    server.is_refusing = Refusal(code, message="too much to do")
    watch = KubernetesApi(server.connection(), QUICK).watch(ELASTIC_JOBS, told)
    wait_until(lambda: f"{code}: too much to do" in watch.trouble)
    server.is_refusing = None
    wait_until(lambda: not watch.trouble)
    change(server, 2)
    wait_until(lambda: told.replicas == 2)
    watch.close()


def test_retry_after_is_kept(server: ApiServer) -> None:
    """Whoever is asked to wait a second does not ask again sooner."""
    told = Told()
    server.refusals.append(Refusal(429, {"Retry-After": "1"}))
    watch = KubernetesApi(server.connection(), QUICK).watch(ELASTIC_JOBS, told)
    wait_until(lambda: told.listings == 1)
    assert server.asked_s[1] - server.asked_s[0] >= 1.0
    watch.close()


def test_a_server_that_is_away_is_said_to_be(server: ApiServer) -> None:
    """Nobody listens there; when somebody does the watch begins."""
    told = Told()
    with TcpProxy(server.port) as proxy:
        proxy.close_door()
        watch = KubernetesApi(server.connection(proxy.url), QUICK).watch(ELASTIC_JOBS, told)
        wait_until(lambda: "does not answer" in watch.trouble)
        proxy.open_door()
        wait_until(lambda: told.replicas == 1 and not watch.trouble)
        watch.close()


def test_a_write_without_a_connection_is_known_to_be_undone(server: ApiServer) -> None:
    """One whose connection breaks off later may have been done."""
    (seen,) = server.objects.items(ELASTIC_JOBS)
    nobody = server.connection(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Unreached, match="does not answer to patch"):
        KubernetesApi(nobody).patch(ELASTIC_JOBS, seen, {"spec": {}})
    with TcpProxy(server.port) as proxy:
        proxy.close_door()
        with pytest.raises(Unavailable) as caught:
            KubernetesApi(server.connection(proxy.url)).patch(ELASTIC_JOBS, seen, {"spec": {}})
    assert not isinstance(caught.value, Unreached)


def test_a_server_that_hangs_up_is_not_asked_in_a_tight_loop(server: ApiServer) -> None:
    """Each time the pause is longer: the first twelve tries take more than their sum at least."""
    server.hangs_up = True
    told = Told()
    times = WatchTimes(connection_s=(0.1, 0.1), short_s=10.0)
    pauses: list[float] = []

    def draw(least_s: float, most_s: float) -> float:
        pauses.append(most_s)
        return 0.0

    api = KubernetesApi(server.connection(), times)
    watch = watch_module.KubernetesWatch(
        server.connection(),
        ELASTIC_JOBS,
        told,
        namespace="",
        labels="",
        list_all=lambda: api.list(ELASTIC_JOBS),
        times=times,
        backoff=Backoff(0.25, 30.0, draw),
    )
    wait_until(lambda: len(pauses) > 9)
    watch.close()
    assert pauses[:9] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_everything_is_listed_again_now_and_then(server: ApiServer) -> None:
    """Whatever the watch told: it may have lost something that nobody noticed."""
    told = Told()
    times = WatchTimes(connection_s=(0.1, 0.1), resync_s=0.0, short_s=0.0)
    watch = KubernetesApi(server.connection(), times).watch(ELASTIC_JOBS, told)
    wait_until(lambda: told.listings > 1)
    watch.close()


def test_a_long_list_comes_in_pages(server: ApiServer) -> None:
    """One that the server forgets between two pages begins anew."""
    for number in range(9):
        server.objects.create(NODES, {"metadata": {"name": f"n{number}"}})
    server.page_limit = 2
    server.refusals.append(Refusal(500))
    api = KubernetesApi(server.connection())
    with pytest.raises(Unavailable):
        api.list(NODES)
    assert [item["metadata"]["name"] for item in api.list(NODES).items] == [
        f"n{number}" for number in range(9)
    ]
    server.asked.clear()
    server.refusals.extend([Refusal(410), Refusal(410)])
    assert len(api.list(NODES).items) == 9
    assert "limit" not in server.asked[-1][2]


def test_page_of_objects_with_files_is_a_short_one(server: ApiServer) -> None:
    """An ElasticJob may have 1.5 MB, and 500 of them are parsed as one document."""
    api = KubernetesApi(server.connection())
    limits = []
    for kind in (NODES, ELASTIC_JOBS):
        api.list(kind)
        limits.append(int(server.asked[-1][2]["limit"]))
    assert limits == [500, 50]


@pytest.mark.parametrize(
    ("refusal", "kind", "words"),
    [
        (Refusal(401, message="Unauthorized"), Refused, "does not know who asks"),
        (Refusal(403, message="nodes is forbidden"), Refused, "nodes is forbidden"),
        (Refusal(404, message="not there"), NotFound, "not there"),
        (Refusal(422, message="spec.x: invalid"), Refused, "spec.x: invalid"),
        (Refusal(429, {"Retry-After": "7"}), Busy, "429"),
        (Refusal(504), Busy, "504"),
    ],
)
def test_a_refusal_is_one_sentence(
    server: ApiServer, refusal: Refusal, kind: type[ElasticdError], words: str
) -> None:
    """It says which server, what was asked, and what it answered."""
    server.refusals.append(refusal)
    with pytest.raises(kind) as caught:
        KubernetesApi(server.connection()).list(NODES)
    assert words in str(caught.value) and server.url in str(caught.value)
    assert "list nodes" in str(caught.value) or refusal.code == 401
    if isinstance(caught.value, Busy):
        assert caught.value.retry_after_s == (7.0 if refusal.headers else 0.0)


def test_something_else_than_an_api_server_is_said_to_be_so(server: ApiServer) -> None:
    """A page of HTML, or JSON that is no list."""
    server.discovery["/apis/elasticd.dev/v1alpha1/elasticjobs"] = {}
    with pytest.raises(NotFound):
        KubernetesApi(server.connection(server.url + "/nowhere")).list(ELASTIC_JOBS)


def test_a_crd_that_does_not_fit_is_one_sentence(server: ApiServer) -> None:
    """None at all, one of another version, one without a sub-resource; each says what to do."""
    api = KubernetesApi(server.connection())
    api.check(ELASTIC_JOBS, ("status", "scale"))
    version = server.discovery["/apis/elasticd.dev/v1alpha1"]
    version["resources"] = version["resources"][:2]
    with pytest.raises(NotSupported, match=r"lacks elasticjobs/scale: apply the CRD"):
        api.check(ELASTIC_JOBS, ("status", "scale"))
    server.discovery["/apis/elasticd.dev"]["versions"] = [{"version": "v1alpha0"}]
    with pytest.raises(NotSupported, match=r"as v1alpha0, and this operator needs v1alpha1"):
        api.check(ELASTIC_JOBS)
    del server.discovery["/apis/elasticd.dev"]
    with pytest.raises(NotFound, match=r"has no elasticjobs.elasticd.dev: apply the CRD"):
        api.check(ELASTIC_JOBS)


# --- configuration ----------------------------------------------------------------------------

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: {url}}}}}]
users: [{{name: u, user: {{token: {token}}}}}]
"""


def test_a_kubeconfig_says_where_and_as_whom(server: ApiServer, tmp_path: Path) -> None:
    """The official client reads it, so all that it may say works as with kubectl."""
    server.token = "secret"
    path = tmp_path / "config"
    path.write_text(KUBECONFIG.format(url=server.url, token="secret"))
    assert len(KubernetesApi(open_connection(str(path))).list(ELASTIC_JOBS).items) == 1
    path.write_text(KUBECONFIG.format(url=server.url, token="wrong"))
    with pytest.raises(Refused, match="does not know who asks"):
        KubernetesApi(open_connection(str(path))).list(ELASTIC_JOBS)


@pytest.mark.parametrize("text", ["", "{", "a: b", KUBECONFIG.replace("name: c", "name: d")])
def test_a_kubeconfig_that_is_none_is_one_sentence(tmp_path: Path, text: str) -> None:
    """Whatever the official client raises on it."""
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(EnvironmentProblem, match=r"kubeconfig .* cannot be used"):
        open_connection(str(path))


def test_no_kubeconfig_and_no_pod_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not there; and a process outside of a cluster."""
    with pytest.raises(EnvironmentProblem, match="There is no kubeconfig"):
        open_connection(str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(EnvironmentProblem, match="ServiceAccount cannot be used"):
        open_connection()


def test_a_token_that_cannot_be_read_is_a_trouble_that_passes(server: ApiServer) -> None:
    """A projected token is replaced while the operator runs."""

    def nothing() -> str:
        raise Unavailable("no token now")

    lost = connection_module.ApiServerConnection(server.connection()._pool, server.url, nothing)
    with pytest.raises(Unavailable, match="no token now"):
        KubernetesApi(lost).list(NODES)


def test_an_answer_may_take_as_long_as_its_question_says(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server tries an eviction again for 10 s, as long as any other answer may take."""
    waited_s: list[float] = []
    connection = server.connection()
    ask = connection._pool.request

    def asked(*words: Any, timeout: Any, **more: Any) -> Any:
        waited_s.append(timeout.read_timeout)
        return ask(*words, timeout=timeout, **more)

    monkeypatch.setattr(connection._pool, "request", asked)
    connection.ask("GET", NODES.path(), {}, what="list nodes", read_s=30.0)
    connection.ask("GET", NODES.path(), {}, what="list nodes")
    assert waited_s == [30.0, connection_module.READ_S]


def test_a_write_that_hangs_is_about_its_object_alone(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook may hang; a question that is not answered says that the server is away."""
    defaults = connection_module.ApiServerConnection.ask.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "read_s", 0.2)
    api = KubernetesApi(server.connection())
    (seen,) = server.objects.items(ELASTIC_JOBS)
    server.hung = "a"
    with pytest.raises(Failed, match="does not answer to patch"):
        api.patch(ELASTIC_JOBS, seen, {"spec": {"replicas": 2}})
    with pytest.raises(Failed, match="does not answer to apply"):
        api.apply(ELASTIC_JOBS, seen)
    with pytest.raises(Failed, match="does not answer to delete"):
        api.delete(ELASTIC_JOBS, seen)
    server.hung = "elasticjobs"
    with pytest.raises(Unavailable) as found:
        api.list(ELASTIC_JOBS)
    assert not isinstance(found.value, Failed)
