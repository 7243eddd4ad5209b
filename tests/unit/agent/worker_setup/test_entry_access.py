"""What workers are started from, and whether the user as whom they run may read it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.fixtures.other_user import NOBODY, open_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may take another user")

CODE = f"""
import json, os, sys, traceback
from dataclasses import replace
from elasticd.records.job import EntryKind
from elasticd_agent.pool.process.effective_user import become_effective
from elasticd_agent.worker_setup.entry_access import check_access
from tests.unit.control.world_case import SPEC


def tell(kind, entry, args, python, cwd, path, is_for_good):
    if is_for_good:
        os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
        os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
    else:
        become_effective({NOBODY}, {NOBODY}, [])
    spec = replace(SPEC, entry_kind=EntryKind(kind), entry=entry, args=tuple(args), python=python)
    try:
        check_access(spec, cwd, {{"PYTHONPATH": path}} if path else {{}})
    except PermissionError as exc:
        return str(exc)
    return ""


for case in iter(sys.stdin.readline, ""):
    if (child := os.fork()) == 0:
        try:
            answer = [tell(*json.loads(case)), ""]
        except BaseException:
            answer = ["", traceback.format_exc()]
        os.write(1, (json.dumps(answer) + chr(10)).encode())
        os._exit(0)
    os.waitpid(child, 0)
"""


class Asker(Protocol):
    """A function that asks one question after the other, each in a process of its own."""

    def __call__(
        self,
        folder: Path,
        kind: str,
        entry: str,
        *args: str,
        python: str = "",
        path: str = "",
        is_for_good: bool = False,
    ) -> str:
        """Return what is told of an entry for the user nobody; empty if nothing is refused."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def told() -> Iterator[Asker]:
    """Fork the process of each question from one that has imported what it calls."""
    with subprocess.Popen(
        [sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as asked:
        questions, answers = asked.stdin, asked.stdout
        assert questions is not None and answers is not None

        def ask(
            folder: Path,
            kind: str,
            entry: str,
            *args: str,
            python: str = "",
            path: str = "",
            is_for_good: bool = False,
        ) -> str:
            case = json.dumps([kind, entry, args, python, str(folder), path, is_for_good])
            questions.write(case + "\n")
            questions.flush()
            said, failure = json.loads(answers.readline())
            assert not failure, failure
            return str(said)

        yield ask


def closed_file(path: Path, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("pass\n")
    path.chmod(mode)
    return path


def closed_folder(path: Path, mode: int = 0o700) -> Path:
    path.mkdir(parents=True)
    path.chmod(mode)
    return path


def test_script_that_cannot_be_read_is_named_with_what_to_do(told: Asker, folder: Path) -> None:
    """The file itself is closed: one right is missing."""
    closed_file(folder / "train it.py")
    assert told(folder, "script", "train it.py") == (
        f"The user nobody of --worker-user cannot read the script {folder}/train it.py: give that "
        f"user the right to (chmod o+rX '{folder}/train it.py'), or choose what that user may read"
    )


def test_folder_that_cannot_be_entered_is_named(told: Asker, folder: Path) -> None:
    """The uppermost of them, also where a link leads into it."""
    closed = closed_folder(folder / "home")
    closed_file(closed / "project" / "train.py", 0o644)
    (folder / "link.py").symlink_to(closed / "project" / "train.py")
    for entry in ("home/project/train.py", "link.py"):
        assert told(folder, "script", entry) == (
            f"The user nobody of --worker-user cannot read the script {folder}/{entry}, since it "
            f"may not enter the folder {closed}: let that user through (chmod o+x {closed}), or "
            "choose a place where it may"
        )


def test_working_directory_is_looked_at_first(told: Asker, folder: Path) -> None:
    """Workers enter it before they read anything."""
    closed = closed_folder(folder / "here")
    said = told(closed, "script", "train.py")
    assert said.startswith(
        f"The user nobody of --worker-user cannot enter the working directory {closed}: give that "
    )


def test_program_and_interpreters_have_to_be_run(told: Asker, folder: Path) -> None:
    """One of `--no-python`, one of `--python`, one of the spec; a script that a program reads is
    its own affair, that of an interpreter is not.
    """
    closed_file(folder / "tool", 0o700)
    closed_file(folder / "train.py")
    python = f"{folder}/tool"
    for said in (
        told(folder, "command", "./tool"),
        told(folder, "command", python, "-u", "train.py"),
        told(folder, "script", "train.py", python=python),
    ):
        assert " cannot run the " in said and f"(chmod o+rx {folder}/tool)" in said
    assert told(folder, "command", "/bin/sh", "train.py") == ""
    assert " the script " in told(folder, "command", "/bin/sh", "-u", "train.py")
    assert " the script " in told(folder, "script", "train.py", python="/bin/sh")


@pytest.mark.parametrize("closed", ["pack", "pack/__init__.py", "pack/deep", "pack/deep/train.py"])
def test_each_part_of_a_module_is_looked_at(told: Asker, folder: Path, closed: str) -> None:
    """Python reads the packages above a module first, and the folder of each."""
    for name in ("pack/__init__.py", "pack/deep/__init__.py", "pack/deep/train.py"):
        closed_file(folder / name, 0o644)
    assert told(folder, "module", "pack.deep.train") == ""
    (folder / closed).chmod(0o700 if (folder / closed).is_dir() else 0o600)
    said = told(folder, "module", "pack.deep.train")
    assert said.startswith(
        "The user nobody of --worker-user cannot read the module pack.deep.train in "
        f"{folder}/{closed}: "
    )
    assert " the module " in told(folder, "command", "/bin/sh", "-u", "-m", "pack.deep.train")


def test_closed_folder_counts_only_if_the_module_is_found_nowhere_else(
    told: Asker, folder: Path
) -> None:
    """Python passes over what it cannot look into."""
    closed = closed_folder(folder / "closed")
    closed_folder(folder / "json")  # A namespace package at best: the library's comes first.
    path = f"{closed}:{folder}/lib"
    assert told(folder, "module", "json.tool", path=path) == ""
    said = told(folder, "module", "mine", path=path)
    assert said.startswith(
        f"The user nobody of --worker-user cannot read the module mine in {closed}: give "
    )
    assert told(folder, "command", "/bin/sh", "-u", "-m", "mine", path=path) == ""
    closed_file(folder / "lib" / "mine.py", 0o644)
    assert told(folder, "module", "mine", path=path) == ""


def test_what_is_missing_or_open_is_not_refused(told: Asker, folder: Path) -> None:
    """Whether it is there, the interpreter says: a file may come with a later start."""
    closed_file(folder / "train.py", 0o644)
    os.mkfifo(folder / "pipe", 0o644)
    for entry in ("train.py", "none.py", "none/train.py", "train.py/none", "pipe", "x" * 300):
        assert told(folder, "script", entry) == ""
    for name in ("none", "train", "train.none", "", "a..b"):
        assert told(folder, "module", name) == ""
    assert told(folder, "command", "no-such-program") == told(folder, "command", "./none") == ""


def test_agent_without_another_user_names_its_own(told: Asker, folder: Path) -> None:
    """A script in a home that the agents' user may not enter is as common there."""
    closed_file(folder / "train.py")
    said = told(folder, "script", "train.py", is_for_good=True)
    assert said.startswith(f"The user nobody cannot read the script {folder}/train.py: give that ")
