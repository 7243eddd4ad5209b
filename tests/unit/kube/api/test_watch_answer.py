"""A watch whose answer does not come, or has errors in place of changes."""

import pytest

from elasticd.kube.api import connection as connection_module
from elasticd.kube.api.kubernetes_api import KubernetesApi
from elasticd.kube.api.port import ELASTIC_JOBS, Changed, ResourceList
from elasticd.kube.api.watch import WatchTimes
from tests.fixtures.api_server import ApiServer, job_of_size
from tests.fixtures.kube_backend import QUICK
from tests.fixtures.patience import patience_s
from tests.fixtures.store import wait_until


def test_watch_that_is_accepted_and_not_answered_does_not_follow(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server begins its answer at once; this one would be waited for until its end."""
    monkeypatch.setattr(connection_module, "READ_S", 0.2)
    server.is_silent = True
    times = WatchTimes(connection_s=(1000.0, 1000.0))
    told: list[ResourceList | Changed] = []
    watch = KubernetesApi(server.connection(), times).watch(ELASTIC_JOBS, told.append)
    wait_until(lambda: "does not answer to watch elasticjobs" in watch.trouble)
    server.is_silent = False
    wait_until(lambda: watch.trouble == "")
    server.objects.apply(ELASTIC_JOBS, job_of_size(2))
    wait_until(lambda: isinstance(told[-1], Changed))
    assert sum(isinstance(event, ResourceList) for event in told) == 1, "it had missed nothing"
    watch.close()


def test_watch_that_has_begun_may_be_silent_for_longer(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing changes there is nothing to tell."""
    monkeypatch.setattr(connection_module, "READ_S", 0.2)
    server.second_s = 1.0
    times = WatchTimes(connection_s=(2.0, 2.0), silence_s=patience_s(10.0))
    told: list[ResourceList | Changed] = []
    watch = KubernetesApi(server.connection(), times).watch(ELASTIC_JOBS, told.append)
    wait_until(lambda: server.requests("GET", watch=True) > 1)
    assert watch.trouble == "" and len(told) == 1
    watch.close()


def test_change_that_the_server_cannot_tell_is_listed(server: ApiServer) -> None:
    """From the version before it, the server would fail at it each time."""
    told: list[ResourceList | Changed] = []
    watch = KubernetesApi(server.connection(), QUICK).watch(ELASTIC_JOBS, told.append)
    wait_until(lambda: server.requests("GET", watch=True) > 0)
    server.is_untold = True
    server.objects.apply(ELASTIC_JOBS, job_of_size(2))
    wait_until(lambda: len(told) > 1)
    last = told[-1]
    assert isinstance(last, ResourceList) and last.items[0]["spec"]["replicas"] == 2
    wait_until(lambda: watch.trouble == "")
    watch.close()
