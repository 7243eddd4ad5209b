"""What deploy/README.md says about two overlays in one builds what all of them have."""

import re
import shutil
import subprocess
from pathlib import Path

import yaml

from tests.fixtures.manifests import DEPLOY, built
from tests.fixtures.patience import patience_s

GPU = "nvidia.com/gpu"


def commands() -> str:
    """Return the commands of that section."""
    section = (DEPLOY / "README.md").read_text().partition("## Two overlays in one")[2]
    (found,) = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return str(found)


def test_gpus_tls_and_monitoring_go_into_one_overlay(tmp_path: Path) -> None:
    """Nothing of any of the three is missing, and nothing stands twice."""
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    shell = ["bash", "-euc", commands()]
    limit_s = patience_s(60.0)
    ended = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, timeout=limit_s)
    assert ended.returncode == 0 and ended.stdout == "built\n", ended.stderr
    words = ["kubectl", "kustomize", str(tmp_path / "deploy/kustomize/overlays/mine")]
    text = subprocess.run(words, capture_output=True, text=True, check=True, timeout=limit_s).stdout
    mine = [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(text)]
    parts = [built(f"overlays/{name}") for name in ("gpu-exclusive", "tls-etcd", "monitoring")]
    crd = ("CustomResourceDefinition", "elasticjobs.elasticd.dev")  # As with `tls-etcd` alone.
    assert len(mine) == len(set(mine))
    assert {(m["kind"], m["metadata"]["name"]) for part in parts for m in part} - {crd} == set(mine)
    agent = next(
        each
        for each in yaml.safe_load_all(text)
        if (each["kind"], each["metadata"]["name"]) == ("DaemonSet", "elasticd-agent")
    )["spec"]["template"]["spec"]["containers"][0]
    assert agent["resources"]["limits"][GPU] == "8"
    assert "elasticd-etcd-client" in text and "https://elasticd-etcd-0" in text
