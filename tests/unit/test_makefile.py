"""The Makefile: what a target does again, and what it leaves as it is."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.fixtures.patience import patience_s

ROOT = Path(__file__).parents[2]
AZURITE = ".ci/azurite"
STUB = '#!/bin/sh\necho "$(basename "$0") $*" >>calls\n'


def test_another_torch_is_installed_once(tmp_path: Path) -> None:
    """A second `make test-torch` runs the tests in the environment that the first one made."""
    programs = tmp_path / ".venv-torch-2.15.0" / "bin"
    for folder in (tmp_path / AZURITE, programs):
        folder.mkdir(parents=True)
    packages = [f"{AZURITE}/package.json", f"{AZURITE}/package-lock.json"]
    for name in ("Makefile", "constraints.txt", "pyproject.toml", *packages):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("python", "npm"):
        (programs / name).write_text(STUB)
        (programs / name).chmod(0o755)

    first, second = _calls_of_make(tmp_path), _calls_of_make(tmp_path)

    assert any(call.endswith("torch==2.15.0") for call in first)
    assert any(call.startswith("npm ci") for call in first)
    assert [call.split()[:3] for call in second] == [["python", "-m", "pytest"]]


def _calls_of_make(folder: Path) -> list[str]:
    """Return what `make test-torch` called in `folder`, which has programs that only write it."""
    # Whoever runs the tests by make has given that one variables, which this one would take, too.
    env = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS")}
    command = ["make", "test-torch", "TORCH=torch==2.15.0", "PYTHON=true"]
    (folder / "calls").unlink(missing_ok=True)
    limit_s = patience_s(60.0)
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, timeout=limit_s)
    return (folder / "calls").read_text().splitlines()
