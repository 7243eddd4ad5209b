"""The two images of deploy/docker: really built, and what they are for runs in them."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from elasticd import __version__
from elasticd.store.private_etcd.embedded import EmbeddedEtcd, free_port
from tests.containers.buildah import Builder
from tests.containers.images import PYTHON_BASE, TORCH_BASE
from tests.containers.waiting import until
from tests.fixtures.api_server import ApiServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SIZE_LIMIT_MB = 200.0
START_LIMIT_S = 60.0


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedEtcd(tmp_path_factory.mktemp("etcd"), env=os.environ) as etcd:
        yield etcd.url


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def test_control_image_is_small_and_runs_as_nobody(builder: Builder, control: str) -> None:
    """With the Python that it is built on here; another one has another size."""
    size_mb = builder.size_mb(control)
    print(f"control image: {size_mb:.0f} MB, base: {builder.size_mb(PYTHON_BASE):.0f} MB")
    assert size_mb <= SIZE_LIMIT_MB
    assert builder.run(control, "id", "-u").strip() == "65532"
    config = builder.config(control)
    assert config["User"] == "65532:65532" and config["Entrypoint"] == ["elasticd"]
    assert config["Labels"]["org.opencontainers.image.version"] == __version__


def test_control_image_has_no_torch_and_its_commands_run(builder: Builder, control: str) -> None:
    """None of them asks for numpy either, and the operator's client is there."""
    code = (
        "import importlib.util as u; assert not u.find_spec('torch') and not u.find_spec('numpy'); "
        "import kubernetes.client; from elasticd.cli.main import COMMANDS; print(*COMMANDS)"
    )
    commands = builder.run(control, "python3", "-c", code).split()
    assert {"operator", "autoscale", "dashboard", "status"} <= set(commands)
    assert "--dry-run" in builder.run(control, "python3", "-m", "chaos.cluster", "--help")


def test_autoscaler_of_the_image_leads_and_is_healthy(
    builder: Builder, control: str, etcd: str
) -> None:
    """By the image's own health check."""
    port = free_port()
    words = ("elasticd", "autoscale", "run", f"--listen=127.0.0.1:{port}")
    with builder.started(control, *words, ELASTICD_ETCD=etcd) as process:
        until(lambda: answers(f"http://127.0.0.1:{port}/healthz"), START_LIMIT_S, process)
        check = builder.config(control)["Healthcheck"]["Test"]
        assert check[0] == "CMD"
        builder.run(control, *check[1:], HEALTH_URL=f"http://127.0.0.1:{port}/healthz")


def test_dashboard_and_status_of_the_image_show_a_cluster(
    builder: Builder, control: str, etcd: str
) -> None:
    """An empty one."""
    port = free_port()
    words = ("elasticd", "dashboard", f"--port={port}")
    with builder.started(control, *words, ELASTICD_ETCD=etcd) as process:
        until(lambda: answers(f"http://127.0.0.1:{port}/"), START_LIMIT_S, process)
    assert "no jobs" in builder.run(control, "elasticd", "status", ELASTICD_ETCD=etcd).lower()


def test_operator_of_the_image_asks_its_api_server(
    builder: Builder, control: str, etcd: str
) -> None:
    """It lists the ElasticJobs of the cluster that its kubeconfig names."""
    server = ApiServer()
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    start = (
        'printf %s "$TEXT" >/tmp/kubeconfig; '
        "exec elasticd operator --kubeconfig=/tmp/kubeconfig --listen=127.0.0.1:0"
    )
    with (
        server,
        builder.started(
            control, "sh", "-c", start, ELASTICD_ETCD=etcd, TEXT=json.dumps(kubeconfig)
        ) as process,
    ):
        until(
            lambda: any("elasticjobs" in path for _, path, _ in server.asked),
            START_LIMIT_S,
            process,
        )


def test_agent_image_takes_the_torch_of_its_base(builder: Builder, agent: str, etcd: str) -> None:
    """And its agent is in the cluster, as nobody, and healthy."""
    ours = builder.run(TORCH_BASE, "python3", "-c", "import torch; print(torch.__version__)")
    theirs = builder.run(agent, "python3", "-c", "import torch; print(torch.__version__)")
    assert ours == theirs
    port = free_port()
    words = ("elasticd", "agent", "--node-id=n0", "--local-addr=127.0.0.1", f"--probe-port={port}")
    with builder.started(agent, *words, ELASTICD_ETCD=etcd, ELASTICD_SLOTS="1") as process:
        until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), START_LIMIT_S, process)
        assert "n0" in builder.run(agent, "elasticd", "nodes", ELASTICD_ETCD=etcd)
    assert builder.config(agent)["User"] == "65532:65532"
