"""What the tests of the connection to an API server begin with."""

from collections.abc import Iterator

import pytest

import elasticd.kube.api.watch as watch_module
from elasticd.kube.api.backoff import Backoff
from elasticd.kube.api.port import ELASTIC_JOBS
from tests.fixtures.api_server import ApiServer, job_of_size


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """An API server with one ElasticJob of size 1."""
    with ApiServer() as server:
        server.objects.create(ELASTIC_JOBS, job_of_size(1))
        yield server


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watches that were cut begin anew at once."""
    monkeypatch.setattr(watch_module, "Backoff", lambda: Backoff(0.005, 0.02))
