"""The journal of an operator on disk."""

import stat
from pathlib import Path

import pytest

from elasticd.errors import EnvironmentProblem
from elasticd.kube.decide.journal import replay
from elasticd.kube.operator.journal_file import JournalFile
from tests.fixtures.operator_scene import OperatorScene


def test_what_it_wrote_replays(scene: OperatorScene, tmp_path: Path) -> None:
    """Also where the file was begun anew in between; nobody else may read it."""
    path = tmp_path / "journal"
    journal = JournalFile(path, limit_bytes=3000)
    scene.node("n1")
    operator = scene.begin(journal=journal)
    for number in range(4):
        scene.create(f"j{number}")
        scene.converge(operator)
    for each in (path, tmp_path / "journal.1"):
        lines = each.read_text().splitlines()
        assert len(lines) > 1 and replay(lines) is None
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


def test_a_disk_that_refuses_ends_the_journal_alone(scene: OperatorScene, tmp_path: Path) -> None:
    """The operator goes on."""
    folder = tmp_path / "f"
    folder.mkdir()
    operator = scene.begin(journal=JournalFile(folder / "journal"))
    (folder / "journal").unlink()
    folder.rmdir()
    scene.create()
    scene.converge(operator)
    assert scene.status()["job"]


def test_a_file_that_cannot_be_is_one_sentence(tmp_path: Path) -> None:
    """At the start, and not at the first decision."""
    with pytest.raises(EnvironmentProblem, match=r"--journal .* cannot be written"):
        JournalFile(tmp_path / "none" / "journal")
