"""What goes with a job into a cluster, and how a run without one is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.__main__ import main
from chaos.error import ChaosError
from chaos.history.records import Applied, Entered, History
from chaos.pods.cluster import KubeCluster
from chaos.pods.injection import Injection
from chaos.pods.server.prometheus import Prometheus
from chaos.pods.site import ROOT, SCRIPT, SENT, PodSite


def test_what_is_sent_with_a_job_is_enough_to_run_it(tmp_path: Path) -> None:
    """In a folder of its own, as the agents unpack it; with no source tree in sight."""
    for name in SENT:
        path = tmp_path / "job" / "chaos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((ROOT / "chaos" / name).read_text())
    (tmp_path / "job" / "ledger.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, tmp_path / "job" / "ledger.py", tmp_path, "--steps", "3", "--in-pod"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "ranks.jsonl").open() as lines:
        history = History.read(lines)
    assert [each.step for each in history.applied] == [1, 2, 3]
    records: list[Entered | Applied] = [*history.entered, *history.applied]
    assert len({each.process for each in records}) == 1
    assert all("@" in each.pod for each in records)


def test_without_a_cluster_it_is_refused_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for kubeconfig in ("", str(tmp_path / "none")):
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        assert main(["run", "kube-pod-delete"]) == 3
        said = capsys.readouterr()
        assert said.out == "" and len(said.err.splitlines()) == 1
        assert said.err.startswith("chaos: ") and "KUBECONFIG" in said.err


def test_a_step_of_the_end_that_fails_keeps_no_other_from_being_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[str] = []

    def fail_at(owner: type, name: str) -> None:
        def step(*_: object) -> None:
            taken.append(f"{owner.__name__}.{name}")
            raise ChaosError(f"It failed at {name}.")

        monkeypatch.setattr(owner, name, step)

    fail_at(Injection, "undo_all")
    for name in ("delete_job", "close_etcd", "close"):
        fail_at(KubeCluster, name)
    fail_at(Prometheus, "close")
    fail_at(PodSite, "_fetch")
    site = PodSite.__new__(PodSite)
    site.name = "chaos-1"
    site.cluster = KubeCluster.__new__(KubeCluster)
    site.prometheus = Prometheus.__new__(Prometheus)
    site._injection = Injection(site)
    with pytest.raises(ChaosError):
        site.close()
    assert taken == [
        "Injection.undo_all",
        "KubeCluster.delete_job",
        "KubeCluster.close_etcd",
        "Prometheus.close",
        "KubeCluster.close",
        "PodSite._fetch",
    ]
