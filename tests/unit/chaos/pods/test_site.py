"""What goes with a job into a cluster, and how a run without one is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.__main__ import main
from chaos.history.records import Applied, Entered, History
from chaos.pods.site import ROOT, SCRIPT, SENT


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
