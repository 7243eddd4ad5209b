"""Whether a machine can have a cluster is found out without a trace, and said in one sentence."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.kube.testbed.cgroup import cgroups_left
from tests.kube.testbed.cluster import Cluster
from tests.kube.testbed.kernel import require_room
from tests.kube.testbed.package import Missing


def _mounts() -> list[str]:
    return sorted(Path("/proc/self/mounts").read_text().splitlines())


def test_machine_that_has_a_cluster_passes_and_keeps_nothing() -> None:
    before = _mounts()
    Cluster().check()
    assert _mounts() == before and cgroups_left("elasticd-probe") == []


@pytest.mark.parametrize("right", ["sys_admin", "net_admin"])
def test_root_without_a_right_is_told_what_was_refused(right: str) -> None:
    """As in a container; the exit code is the one by which CI leaves the tests out."""
    command = ["setpriv", f"--bounding-set=-{right}", sys.executable, "-m", "tests.kube.testbed"]
    done = subprocess.run([*command, "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "cannot have the Kubernetes testbed" in done.stderr
    assert "Operation not permitted" in done.stderr and "Traceback" not in done.stderr
    assert cgroups_left("elasticd-probe") == []


def test_full_disk_is_told_before_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    with pytest.raises(Missing, match=r"8 GiB of disk, and 1\.0 GiB are free"):
        require_room(tmp_path)
