"""The pods beside the agents: operator, autoscaler and dashboard."""

from typing import Any

import pytest

from tests.fixtures.manifests import built

BASE = built("base")
NAMES = ("operator", "autoscaler", "dashboard")


def container_of(name: str) -> Any:
    """Return the one container of a Deployment."""
    (found,) = (
        each["spec"]["template"]["spec"]["containers"]
        for each in BASE
        if each["kind"] == "Deployment" and each["metadata"]["name"] == f"elasticd-{name}"
    )
    (container,) = found
    return container


@pytest.mark.parametrize("name", NAMES)
def test_pod_that_starts_slowly_is_not_restarted(name: str) -> None:
    """From a cold disk, or beside workers: it would start from the beginning, again and again."""
    container = container_of(name)
    probe, later = container["startupProbe"], container["livenessProbe"]
    how = "exec" if name == "dashboard" else "httpGet"
    assert probe[how] == later[how]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 600


def test_operator_has_memory_for_the_objects_that_it_holds() -> None:
    """With 120 ElasticJobs of 700 kB it took 590 MB at its start, and the limit was 512 MiB.

    So whoever led was killed, and so was the next one.
    """
    resources = container_of("operator")["resources"]
    assert resources["limits"]["memory"] == "2Gi"
    assert resources["requests"]["memory"] == "192Mi"
