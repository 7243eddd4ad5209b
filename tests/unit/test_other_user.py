"""The view in which another user may read what the tests run, and where there can be none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.other_user import NOBODY, open_folder, with_open_view


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have the interpreter's packages lie below a folder that only its owner enters."""
    home = tmp_path / "home"
    (home / "packages").mkdir(parents=True)
    home.chmod(0o700)
    monkeypatch.setattr(sys, "prefix", str(home / "packages"))
    return home


@pytest.mark.parametrize("code", ["echo not permitted >&2; exit 1", "exit 1", ""])
def test_machine_that_refuses_to_mount_is_named_as_the_reason(
    home: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI takes that for a failure; elsewhere nothing is broken."""
    tools = home / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    if code:
        (tools / "unshare").write_text(f"#!/bin/sh\n{code}\n")
        (tools / "unshare").chmod(0o700)
    monkeypatch.setenv("PATH", str(tools))
    why = {"": "cannot be started"}.get(code, "not permitted" if "echo" in code else "exit code 1")
    with open_folder() as folder, pytest.raises(pytest.skip.Exception) as skipped:
        with_open_view(folder)
    said = str(skipped.value)
    assert said.startswith("another user may not enter /") and why in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_another_user_reads_in_the_view_what_is_closed_elsewhere(home: Path) -> None:
    """Nothing else of that folder is seen there."""
    (home / "packages" / "module.py").write_text("pass\n")
    (home / "secret").write_text("s3cr3t\n")
    as_nobody = ["setpriv", "--reuid", str(NOBODY), "--clear-groups", "sh", "-c"]
    code = f"ls {home}; cat {home}/packages/module.py"
    closed = subprocess.run([*as_nobody, code], capture_output=True, text=True, check=False)
    assert closed.stdout == ""
    with open_folder() as folder:
        view = with_open_view(folder)
        done = subprocess.run(
            [*view, *as_nobody, code], capture_output=True, text=True, check=False
        )
        assert list(folder.rglob("*.py")) == []
    assert done.stdout == "packages\npass\n", done.stderr
