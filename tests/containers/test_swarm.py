"""The stack of deploy/compose on two real engines: a job outlives a kill, a drain, a rollout."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.containers.buildah import ROOT
from tests.containers.engine import Engine, running_engines
from tests.containers.images import IMAGES, image_file
from tests.containers.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LIMIT_S = 240.0


@pytest.fixture
def engines(images: Path) -> Iterator[list[Engine]]:
    """Two engines of one swarm, with the images."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("Engines need root and Debian's docker.io")
    with running_engines(["a", "b"]) as (first, second):
        for engine in (first, second):
            for image in IMAGES:
                engine.docker("load", "-q", "-i", image_file(images, image))
        first.docker(
            *("swarm", "init", f"--advertise-addr={first.address}"),
            *("--default-addr-pool=10.76.128.0/18", "--default-addr-pool-mask-length=24"),
        )
        token = first.docker("swarm", "join-token", "-q", "worker")
        second.docker("swarm", "join", "--token", token, f"{first.address}:2377")
        yield [first, second]


class Stack:
    """The stack, as its manager sees it."""

    def __init__(self, manager: Engine) -> None:
        self.manager = manager

    def deploy(self, folder: Path) -> None:
        token = folder / "token"
        token.write_text("0123456789abcdef0123456789abcdef")
        self.manager.docker("secret", "create", "dashboard-token", token)
        environment = {"ETCD_IMAGE": "etcd:base", "PROMETHEUS_IMAGE": "prometheus:base"}
        words = "env", *(f"{name}={value}" for name, value in environment.items()), "docker"
        file = ROOT / "deploy" / "compose" / "stack.yaml"
        self.manager.call(
            [*words, "stack", "deploy", "--resolve-image=never", f"-c={file}", "elasticd"]
        )

    def elasticd(self, *words: str, service: str = "dashboard") -> str:
        """Call elasticd in a container of that service, on the manager's machine."""
        found = self.manager.docker("ps", "-q", "-f", f"name=elasticd_{service}").split()
        return self.manager.docker("exec", found[0], "elasticd", *words) if found else ""

    def job(self) -> tuple[set[str], int]:
        """Return the nodes of the job's world, and its step."""
        try:
            seen: Any = json.loads(self.elasticd("status", "trial", "--json") or "{}")
        except (AssertionError, subprocess.TimeoutExpired):
            return set(), 0  # The dashboard's container was just then replaced.
        nodes = {each["node"] for each in (seen.get("world") or {}).get("nodes", ())}
        return nodes, max((each["step"] or 0 for each in seen.get("progress", ())), default=0)

    def story(self) -> str:
        """Return what a person would look at, for a test that fails."""
        services = self.manager.docker("stack", "ps", "--no-trunc", "elasticd")
        return "\n".join(
            [services, *(self.elasticd(*words) for words in (["nodes"], ["status", "trial"]))]
        )


def test_job_on_a_swarm_outlives_a_container_a_machine_and_a_rollout(
    engines: list[Engine], tmp_path: Path
) -> None:
    """The state is never lost: no step is counted twice, from the first world to the last."""
    manager, worker = engines
    stack = Stack(manager)
    stack.deploy(tmp_path)
    until(lambda: "3 nodes" in stack.elasticd("nodes"), LIMIT_S)
    words = ("run", "--job=trial", "--nnodes=1:3", "--lease-ttl=30", "--detach")
    stack.elasticd(*words, "/scripts/train.py", "--steps=1000000", "--b=0.1", service="agent")
    everybody = {"agent-1", "agent-2", "agent-3"}
    step = trained(stack, lambda nodes: nodes == everybody, after=20)

    (container, *_) = worker.docker("ps", "-q", "-f", "name=elasticd_agent").split()
    worker.docker("kill", container)
    step = trained(stack, lambda nodes: nodes < everybody, after=step)
    step = trained(stack, lambda nodes: nodes == everybody, after=step)

    manager.docker("node", "update", "--availability=drain", worker.name)
    until(lambda: not worker.docker("ps", "-q", "-f", "name=elasticd_agent"), LIMIT_S)
    step = trained(stack, lambda nodes: nodes == everybody, after=step)

    manager.docker("node", "update", "--availability=active", worker.name)
    manager.docker("service", "update", "-q", "--force", "elasticd_agent", limit_s=900)
    trained(stack, lambda nodes: nodes == everybody, after=step)


def trained(stack: Stack, is_world: Callable[[set[str]], bool], *, after: int) -> int:
    """Wait until such a world has gone beyond a step, and return where it is."""
    found = [0]

    def is_there() -> bool:
        nodes, found[0] = stack.job()
        return is_world(nodes) and found[0] > after

    until(is_there, LIMIT_S, seen=stack.story)
    return found[0]
