"""What is looked at on the machine itself."""

import resource
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from elasticd.cli.doctor import machine_check
from elasticd.cli.doctor.finding import Verdict
from elasticd.errors import CallError


def test_machine_tells_what_it_has() -> None:
    (found,) = machine_check.check_machine({"CUDA_VISIBLE_DEVICES": ""})
    assert found.verdict is Verdict.OK
    assert " CPU" in found.found and "0 GPUs" in found.found


@pytest.mark.parametrize("path", [Path("/sys/fs/cgroup/memory.oom.group"), None])
def test_container_that_is_killed_as_a_whole_is_told(path: Path | None) -> None:
    (found,) = machine_check.check_oom_kills(path)
    assert found.verdict is (Verdict.OK if path is None else Verdict.WARNING)
    assert ("singleProcessOOMKill" in found.advice) is (path is not None)


@pytest.mark.parametrize(("size", "verdict"), [(64 << 20, Verdict.WARNING), (8 << 30, Verdict.OK)])
def test_shared_memory_of_a_plain_container_is_told(
    size: int, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(total=size))
    (found,) = machine_check.check_shared_memory()
    assert found.verdict is verdict
    assert ("--shm-size" in found.advice) is (verdict is Verdict.WARNING)


@pytest.mark.parametrize(
    ("hard", "verdict"),
    [(1024, Verdict.WARNING), (65536, Verdict.OK), (resource.RLIM_INFINITY, Verdict.OK)],
)
def test_few_open_files_are_told(
    hard: int, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, hard))
    (found,) = machine_check.check_open_files()
    assert found.verdict is verdict


def test_run_folder_is_left_as_it_was(tmp_path: Path) -> None:
    """One that is not there yet is not there afterwards; what is in one stays."""
    (found,) = machine_check.check_run_folder(tmp_path / "runs")
    assert found.verdict in (Verdict.OK, Verdict.WARNING)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "job").touch()
    list(machine_check.check_run_folder(tmp_path))
    assert [each.name for each in tmp_path.iterdir()] == ["job"]


def test_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10_000))
    (found,) = machine_check.check_run_folder(tmp_path)
    assert found.verdict is Verdict.WARNING and "--log-dir" in found.advice


def test_run_folder_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(CallError, match="--log-dir"):
        list(machine_check.check_run_folder(Path("/proc/nope")))
