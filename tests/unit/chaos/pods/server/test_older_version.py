"""The version before comes out of git, and stands before the image's own."""

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.error import ChaosError
from chaos.pods.server.older_version import python_path, unpack


def test_a_python_imports_what_was_unpacked(tmp_path: Path) -> None:
    unpack("HEAD", tmp_path / "before")
    path = python_path(tmp_path / "before")
    program = "import elasticd, elasticd_agent; print(elasticd.__file__, elasticd_agent.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(each.startswith(f"{tmp_path}/before/") for each in done.stdout.split())


def test_a_commit_that_is_not_there_is_refused_with_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ChaosError, match="all of its commits"):
        unpack("0" * 40, tmp_path / "before")
    assert not (tmp_path / "before").exists()
