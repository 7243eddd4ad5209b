"""The version before comes out of git, and stands before the image's own."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.error import ChaosError
from chaos.pods.server.older_version import python_path, unpack

pytestmark = pytest.mark.history


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


def test_everybody_can_read_it_whatever_our_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        unpack("HEAD", tmp_path / "before")
    finally:
        os.umask(before)
    paths = [tmp_path / "before", *(tmp_path / "before").rglob("*")]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert all(mode == 0o755 for path, mode in modes.items() if path.is_dir())
    assert all(mode & 0o444 == 0o444 for path, mode in modes.items() if path.is_file())


def test_what_is_there_is_not_unpacked_again(tmp_path: Path) -> None:
    for _ in range(2):
        unpack("HEAD", tmp_path / "before")
        (tmp_path / "before" / "elasticd" / "__init__.py").write_text("kept = True")
    assert (tmp_path / "before" / "elasticd" / "__init__.py").read_text() == "kept = True"


def test_half_of_it_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "before.partial" / "elasticd").mkdir(parents=True)
    unpack("HEAD", tmp_path / "before")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before"]
    assert (tmp_path / "before" / "agent").is_dir()
