"""A watch whose thread meets what nobody thought of goes on all the same."""

from typing import Any

import pytest

from elasticd.kube.api import watch as watch_module
from elasticd.kube.api.backoff import Backoff
from elasticd.kube.api.kubernetes_api import KubernetesApi
from elasticd.kube.api.port import ELASTIC_JOBS, Changed, ObjectWatch, ResourceList, name_of
from tests.fixtures.api_server import ApiServer, job_of_size
from tests.fixtures.kube_backend import QUICK
from tests.fixtures.store import wait_until


def test_a_bug_in_its_thread_is_no_silence_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that it cannot follow, and lists anew: an operator would decide by old objects."""
    watches: list[ObjectWatch] = []
    troubles: set[str] = set()

    class Noting(Backoff):
        """A trouble may be over before anybody looks."""

        def next_s(self, at_least_s: float = 0.0) -> float:
            troubles.update(watch.trouble for watch in watches)
            return super().next_s(at_least_s)

    monkeypatch.setattr(watch_module, "Backoff", lambda: Noting(0.005, 0.02))
    told: list[ResourceList | Changed] = []
    is_broken = True

    def breaking(found: Any) -> Any:
        if is_broken:
            raise ZeroDivisionError
        return name_of(found)

    with ApiServer() as server:
        server.objects.create(ELASTIC_JOBS, job_of_size(1))
        watch = KubernetesApi(server.connection(), QUICK).watch(ELASTIC_JOBS, told.append)
        watches.append(watch)
        wait_until(lambda: server.requests("GET", watch=True) > 0)
        monkeypatch.setattr("elasticd.kube.api.stream.name_of", breaking)
        server.objects.apply(ELASTIC_JOBS, job_of_size(2))
        wait_until(lambda: any("was not understood" in trouble for trouble in list(troubles)))
        is_broken = False
        wait_until(lambda: watch.trouble == "")
        server.objects.apply(ELASTIC_JOBS, job_of_size(3))
        wait_until(lambda: isinstance(told[-1], Changed))
        watch.close()
    assert sum(isinstance(event, ResourceList) for event in told) >= 2
