"""The guide's ten minutes, done as they stand on the page: every command, in its order."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kube.elastic_cluster import ElasticCluster
from tests.kube.testbed.binary import program
from tests.kube.testbed.cluster import Cluster
from tests.kube.testbed.image.store import IMAGES

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "kubernetes.md"
SECTION = re.compile(r"^## In ten minutes$(.*?)^## ", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```sh$(.*?)^```$", re.MULTILINE | re.DOTALL)
AGENT, CONTROL, ETCD = (name.rpartition(":")[0] for name in IMAGES)
HERE = {
    # The names that a reader puts in, and the overlay of a server as old as the testbed's.
    "overlays/cpu-dev": "overlays/kubernetes-1.20",
    "REGISTRY/elasticd-agent": AGENT,
    "REGISTRY/elasticd": CONTROL,
    "REGISTRY/etcd": ETCD,
    '"0.1.0"': "testbed",
    '"3.5"': "testbed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Somebody who does what the page says."""

    folder: Path
    kubeconfig: Path

    def do(self, block: str) -> str:
        """Type one block into a shell; return what was printed."""
        for word, mine in HERE.items():
            block = block.replace(word, mine)
        path = f"{program('kubectl').parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=self.folder,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def blocks() -> Sequence[str]:
    """Return the section's commands."""
    section = SECTION.search(PAGE.read_text())
    assert section is not None, f"{PAGE} has no section of ten minutes"
    return [found.strip() for found in BLOCK.findall(section.group(1))]


@pytest.fixture
def reader(kube_cluster: Cluster, tmp_path: Path) -> Iterator[Reader]:
    """In a folder with what a checkout has; an elasticd that was there is put back afterwards."""
    elastic = ElasticCluster(kube_cluster)
    was_up = elastic.is_up()
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    yield Reader(folder=tmp_path, kubeconfig=kube_cluster.api.kubeconfig)
    if was_up:
        elastic.up()
    elif elastic.is_up():
        elastic.down()


def test_the_ten_minutes_do_what_they_say(reader: Reader) -> None:
    """An overlay, a cluster of agents, a job, one that survives a deleted pod, and nothing left."""
    overlay, applied, trained, survived, gone = blocks()
    reader.do(overlay)
    assert all(node in reader.do(applied) for node in ("node1", "node2", "node3"))
    told = reader.do(trained)
    assert re.search(r"^line +Succeeded", told, re.MULTILINE) and "WorldFormed" in told
    why = reader.do(survived)
    assert re.search(r"node[123]", why) and "rolled out" in why
    reader.do(gone)
    assert reader.do("kubectl get ns --no-headers -o name elasticd --ignore-not-found") == ""
