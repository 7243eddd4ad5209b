"""compose.yaml on a real engine: a job goes on without a killed agent, and takes it in again."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.buildah import ROOT
from tests.containers.engine import Engine, running_engines
from tests.containers.images import IMAGES, image_file
from tests.containers.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FILE = ROOT / "deploy" / "compose" / "compose.yaml"
LIMIT_S = 240.0


class Composed:
    """The services of compose.yaml on an engine."""

    def __init__(self, engine: Engine, token: Path) -> None:
        self.engine = engine
        settings = {
            "ETCD_IMAGE": "etcd:base",
            "PROMETHEUS_IMAGE": "prometheus:base",
            "DASHBOARD_TOKEN_FILE": token,
        }
        self._words = [
            "env",
            *(f"{name}={value}" for name, value in settings.items()),
            *("docker-compose", f"--file={FILE}", "--project-name=elasticd"),
        ]

    def compose(self, *words: str) -> str:
        return self.engine.call([*self._words, *words], limit_s=300.0)

    def elasticd(self, *words: str, service: str = "dashboard") -> str:
        return self.compose("exec", "-T", service, "elasticd", *words)

    def steps(self) -> dict[str, int]:
        """Return the nodes of the job's world, and where the job is, by node."""
        seen = json.loads(self.elasticd("status", "trial", "--json"))
        step = max((each["step"] or 0 for each in seen.get("progress", ())), default=0)
        return {each["node"]: step for each in (seen.get("world") or {}).get("nodes", ())}


@pytest.fixture
def composed(images: Path, tmp_path: Path) -> Iterator[Composed]:
    if os.geteuid() != 0 or shutil.which("docker-compose") is None:
        pytest.skip("An engine needs root, and Debian's docker.io and docker-compose")
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    with running_engines(["a"]) as (engine,):
        for image in IMAGES:
            engine.docker("load", "-q", "-i", image_file(images, image))
        composed = Composed(engine, token)
        composed.compose("up", "--detach", "--no-build")
        yield composed
        composed.compose("down", "--volumes", "--timeout=30")


def test_job_goes_on_without_a_killed_agent_and_takes_it_in_again(composed: Composed) -> None:
    """Docker starts the container anew, under the name that it had."""
    until(lambda: "3 nodes" in composed.elasticd("nodes"), LIMIT_S)
    words = ("run", "--job=trial", "--nnodes=1:3", "--lease-ttl=30", "--detach")
    composed.elasticd(
        *words, "/scripts/paced_elastic.py", "--steps=1000000", "--b=0.1", service="agent"
    )
    until(lambda: len(composed.steps()) == 3 and min(composed.steps().values()) > 20, LIMIT_S)
    before = composed.steps()
    container = composed.compose("ps", "-q", "agent").split()[0]
    pid = int(composed.engine.docker("inspect", "--format={{.State.Pid}}", container))
    os.kill(pid, signal.SIGKILL)
    until(lambda: 0 < len(composed.steps()) < 3, LIMIT_S)
    until(lambda: composed.steps().keys() == before.keys(), LIMIT_S)
    step = max(before.values())
    until(lambda: min(composed.steps().values(), default=0) > step, LIMIT_S)
