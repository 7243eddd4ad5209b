"""Compose and Swarm start the same cluster, and Swarm is told nothing that it does not hear."""

from typing import Any

import pytest
import yaml

from elasticd import __version__
from tests.fixtures.manifests import DEPLOY, SHUTDOWN_S, parsed, variables

FOLDER = DEPLOY / "compose"
COMPOSE, STACK = (
    yaml.safe_load((FOLDER / name).read_text()) for name in ("compose.yaml", "stack.yaml")
)
FILES = {"compose": COMPOSE["services"], "stack": STACK["services"]}
OURS = ("agent", "autoscaler", "dashboard")
ABOVE_THE_GRACE_S = 90
"""On top of the largest --shutdown-timeout: the agent's goodbye, and its keepers."""
UNHEARD = {
    *("build", "container_name", "depends_on", "links", "mem_limit", "network_mode", "restart"),
    *("scale", "security_opt", "shm_size", "tmpfs"),
}
"""What `docker stack deploy` leaves out; without a word, some of it."""


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


@pytest.mark.parametrize("services", FILES.values(), ids=FILES)
@pytest.mark.parametrize("name", OURS)
def test_commands_and_variables_are_those_that_there_are(
    services: dict[str, Any], name: str
) -> None:
    """And the image is of this version."""
    service = services[name]
    command = parsed(service["command"])
    assert {n for n in service["environment"] if n.startswith("ELASTICD_")} <= variables(command)
    assert service["image"].endswith(f":{__version__}")
    assert service["read_only"] and service["cap_drop"] == ["ALL"]


def test_both_start_the_same() -> None:
    """One is for a machine, the other for several."""
    assert COMPOSE["services"].keys() == STACK["services"].keys()
    for name, service in COMPOSE["services"].items():
        other = STACK["services"][name]
        assert service["image"] == other["image"] and service["command"] == other["command"], name
        assert service.get("environment") == other.get("environment"), name
        count = other["deploy"].get("replicas", 1)
        assert service.get("scale", 1) == count, name


def test_swarm_is_told_nothing_that_it_ignores() -> None:
    """With `tmpfs`, which it ignores, an agent has no folder to write to and ends."""
    for name, service in STACK["services"].items():
        assert not UNHEARD & set(service), name
        assert service["deploy"]["endpoint_mode"] == "dnsrr", "not all kernels have IPVS"
        if service.get("read_only"):
            assert {"type": "tmpfs", "target": "/tmp"} in service["volumes"], name


@pytest.mark.parametrize("services", FILES.values(), ids=FILES)
def test_agents_and_leaders_have_time_to_leave(services: dict[str, Any]) -> None:
    """SIGKILL comes after it."""
    agent, autoscaler = services["agent"], services["autoscaler"]
    assert seconds(agent["stop_grace_period"]) >= SHUTDOWN_S + ABOVE_THE_GRACE_S
    assert seconds(autoscaler["stop_grace_period"]) >= 15


def test_one_agent_at_a_time_is_replaced() -> None:
    """With time to be given the state; and it keeps its node's name, by which drains find it."""
    agent = STACK["services"]["agent"]
    update = agent["deploy"]["update_config"]
    assert update["parallelism"] == 1 and update["order"] == "stop-first"
    assert seconds(update["delay"]) >= 60
    assert "{{.Task.Slot}}" in agent["hostname"]


@pytest.mark.parametrize("services", FILES.values(), ids=FILES)
def test_only_the_dashboard_is_published_and_it_has_a_token(services: dict[str, Any]) -> None:
    """Who reaches etcd or an agent can run code as the agents."""
    assert [name for name, service in services.items() if "ports" in service] == ["dashboard"]
    dashboard = services["dashboard"]
    assert "--token-file=/run/secrets/dashboard-token" in dashboard["command"]
    assert dashboard["secrets"] == ["dashboard-token"]
    for port in dashboard["ports"]:
        assert port == "127.0.0.1:8900:8900" or port["mode"] == "host"


def test_prometheus_scrapes_the_services_where_they_listen() -> None:
    """By names that stand for all containers of a service."""
    settings = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    asked = {
        found["names"][0]: found["port"]
        for job in settings["scrape_configs"]
        for found in job["dns_sd_configs"]
    }
    assert asked.keys() == {"agent", "autoscaler"}
    for name, port in asked.items():
        words = " ".join(COMPOSE["services"][name]["command"])
        assert f"--http-port={port}" in words or f":{port}" in words
