"""What is installed is told by names: Python keeps compiled modules in the same folders."""

import os
import sys
from pathlib import Path

import pytest

from elasticd_agent.pool.fork_server.installation import installation


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site-packages"
    (folder / "one-1.0.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    return folder


def test_compiled_modules_change_nothing(packages: Path) -> None:
    before = installation()
    (packages / "__pycache__").mkdir()
    (packages / "__pycache__" / "one.pyc").touch()
    assert installation() == before


def test_new_package_is_a_change(packages: Path) -> None:
    before = installation()
    (packages / "two").mkdir()
    assert installation() != before


def test_same_version_that_is_installed_again_is_a_change(packages: Path) -> None:
    before = installation()
    os.utime(packages / "one-1.0.dist-info", ns=(1, 1))
    assert installation() != before
