"""`elasticd operator`: what a user can get wrong is one sentence; torch is nowhere."""

import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.cli.main import main
from elasticd.kube.api.kubernetes_api import KubernetesApi
from elasticd.kube.operator.process import check_server
from tests.fixtures.api_server import ApiServer, Refusal

ETCD = ("--etcd", "http://127.0.0.1:1")
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: {url}}}}}]
users: [{{name: u, user: {{token: x}}}}]
"""


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "ELASTICD_ETCD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def complaint(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["operator", *argv]) == 2
    told = capsys.readouterr().err.strip()
    assert told.count("\n") == 0 and told.startswith("elasticd: ")
    return told


def config(path: Path, url: str) -> tuple[str, ...]:
    path.write_text(KUBECONFIG.format(url=url))
    return (*ETCD, "--kubeconfig", str(path), "--listen", "127.0.0.1:0")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "needs etcd: give --etcd"),
        ((*ETCD, "--lease-ttl", "1s"), "--lease-ttl 1 is below 2 seconds"),
        ((*ETCD, "--lease-ttl", "2d"), "--lease-ttl 172800 is above 86400 seconds"),
        ((*ETCD, "--listen", "here"), "--listen here is no address"),
        ((*ETCD, "--listen", "a:" + "9" * 5000), "is no address"),
        (ETCD, "There is no kubeconfig"),
        ((*ETCD, "--kubeconfig", "/nowhere"), "There is no kubeconfig /nowhere"),
    ],
)
def test_a_wrong_call_is_one_sentence(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], words: str
) -> None:
    """Before anything is asked of a server."""
    assert words in complaint(capsys, *argv)


def test_a_file_that_is_no_kubeconfig_is_called_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Not by where the client's code broke."""
    (tmp_path / "notes").write_text("root:x:0:0\n")
    told = complaint(capsys, *ETCD, "--kubeconfig", str(tmp_path / "notes"))
    assert "cannot be used (it is no kubeconfig): try it with `kubectl version`" in told


def test_a_cluster_without_the_crd_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """None, one of another version, one that lacks a sub-resource."""
    with ApiServer() as server:
        argv = config(tmp_path / "k", server.url)
        resources = server.discovery["/apis/elasticd.dev/v1alpha1"]["resources"]
        del resources[1]
        assert "lacks elasticjobs/status" in complaint(capsys, *argv)
        server.discovery["/apis/elasticd.dev"] = {"versions": [{"version": "v1"}]}
        assert "needs v1alpha1" in complaint(capsys, *argv)
        server.discovery.clear()
        assert "apply the CRD" in complaint(capsys, *argv)


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (Refusal(401, message="Unauthorized"), "does not know who asks (Unauthorized)"),
        (Refusal(403, message="no"), "does not permit to"),
    ],
)
def test_a_right_that_is_missing_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, refusal: Refusal, words: str
) -> None:
    """It says what was asked for, and what to look at."""
    with ApiServer() as server:
        server.is_refusing = refusal
        assert words in complaint(capsys, *config(tmp_path / "k", server.url))


def test_an_api_server_that_is_away_is_no_reason_to_end() -> None:
    """It is waited for, as it is when it goes away later."""
    with ApiServer() as server:
        api = KubernetesApi(server.connection("http://127.0.0.1:1"))
    check_server(api, "")


NO_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("there is no torch in this image")
sys.meta_path.insert(0, NoTorch())
"""


@pytest.mark.parametrize("command", ["operator", "autoscale run", "dashboard"])
def test_it_runs_where_torch_cannot_be_imported(command: str) -> None:
    """The image of what controls has none."""
    call = f"sys.exit(main([*{command.split()!r}, '--help']))"
    code = f"{NO_TORCH}\nfrom elasticd.cli.main import main\n{call}"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_all_of_the_operator_can_be_imported_without_torch_and_without_kubernetes() -> None:
    """The client comes with the connection, inside a function; nobody else pays for it."""
    code = f"""{NO_TORCH}
import importlib, pkgutil, elasticd.kube
for found in pkgutil.walk_packages(elasticd.kube.__path__, "elasticd.kube."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
assert "kubernetes" not in sys.modules and "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
