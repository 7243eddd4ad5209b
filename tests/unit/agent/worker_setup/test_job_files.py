"""The files and the variables that a job's spec brings to a node."""

import os
from pathlib import Path

import pytest

from elasticd_agent.worker_setup.job_files import folder_of, read_variables, write_files


def test_files_lie_in_their_folders(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "x")
    write_files(folder, {"train.py": "a = 'ü'\n", "lib/model.py": ""})
    assert (folder / "train.py").read_text(encoding="utf-8") == "a = 'ü'\n"
    assert sorted(os.listdir(folder)) == ["lib", "train.py"], "no partial file is left"
    assert (folder / "lib/model.py").read_text() == ""


def test_what_stands_there_already_is_not_written_again(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "1", "b.py": "1"})
    before = (tmp_path / "a.py").stat().st_ino, (tmp_path / "b.py").stat().st_ino
    write_files(tmp_path, {"a.py": "1", "b.py": "2"})
    after = (tmp_path / "a.py").stat().st_ino, (tmp_path / "b.py").stat().st_ino
    assert before[0] == after[0] and before[1] != after[1]
    assert (tmp_path / "b.py").read_text() == "2"


def test_agents_in_pods_that_share_a_folder_write_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is process 1 of its pod: the one took the other's file away, or its beginning."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    rename, names = Path.rename, []

    def other_comes_first(self: Path, target: Path) -> Path:
        names.append(self.name)
        if len(names) == 1:
            write_files(tmp_path, {"train.py": "all of it"})
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", other_comes_first)
    write_files(tmp_path, {"train.py": "all of it"})
    assert os.listdir(tmp_path) == ["train.py"] and len(set(names)) == 2
    assert (tmp_path / "train.py").read_text() == "all of it"


@pytest.mark.parametrize("name", ["../a", "/tmp/a", "lib/../../a", "lib//a", "."])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    """Whoever submits was told already; this is for a record that nobody looked at."""
    with pytest.raises(ValueError, match="would not lie"):
        write_files(tmp_path / "files", {"good.py": "", name: "x"})
    assert list(tmp_path.iterdir()) == []


def test_a_program_can_be_executed(tmp_path: Path) -> None:
    write_files(tmp_path, {"run.sh": "#!/bin/sh\n", "a.py": ""})
    assert os.access(tmp_path / "run.sh", os.X_OK) and not os.access(tmp_path / "a.py", os.X_OK)


def test_variables_have_what_stands_in_their_files(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("a=b\n")
    assert read_variables({"KEY": str(tmp_path / "id")}) == {"KEY": "a=b\n"}


def test_a_secret_that_is_not_there_is_named() -> None:
    with pytest.raises(OSError, match="no/such/key"):
        read_variables({"KEY": "/no/such/key"})


@pytest.mark.parametrize("content", [b"a\0b", b"\xff\xfe", b"x" * 100_001])
def test_what_can_be_no_variable_is_said_without_its_value(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "id").write_bytes(content)
    with pytest.raises(ValueError, match=r"id for KEY (has|is)"):
        read_variables({"KEY": str(tmp_path / "id")})
