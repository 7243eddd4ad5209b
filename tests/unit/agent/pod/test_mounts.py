"""Which folder a container lacks is said in one sentence."""

from pathlib import Path

import pytest

from elasticd.errors import EnvironmentProblem
from elasticd_agent.pod.mounts import SMALL_SHM_BYTES, check_shared_memory, check_temporary
from tests.fixtures.captured_log import captured_log


@pytest.fixture
def no_folder(tmp_path: Path) -> Path:
    """A path where nothing can be made, for root too: what should be a folder is a file."""
    path = tmp_path / "file"
    path.touch()
    return path


def test_a_folder_that_was_named_is_enough(tmp_path: Path, no_folder: Path) -> None:
    """TMPDIR is what a machine with a small /tmp sets."""
    check_temporary(str(tmp_path), [no_folder])
    check_temporary("", [no_folder, tmp_path])
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("is_named", [True, False])
def test_no_folder_for_temporary_files_is_refused(no_folder: Path, is_named: bool) -> None:
    """At the start, not in the middle of torch's import."""
    with pytest.raises(EnvironmentProblem, match="mount one at /tmp, in a pod an emptyDir"):
        check_temporary(str(no_folder) if is_named else "", [no_folder])


def test_missing_shared_memory_is_said(no_folder: Path) -> None:
    """And no more than that: many a script needs none."""
    with captured_log() as logs:
        check_shared_memory(no_folder)
    (said,) = logs
    assert (said["event"], said["path"]) == ("mount.missing", str(no_folder))
    assert "medium: Memory" in said["hint"]


def test_small_shared_memory_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MB is what a container gets that asked for nothing."""
    for size, is_small in ((SMALL_SHM_BYTES, True), (SMALL_SHM_BYTES + 4096, False)):
        blocks = type("Blocks", (), {"f_blocks": size // 4096, "f_frsize": 4096})
        monkeypatch.setattr("os.statvfs", lambda path, found=blocks: found)
        with captured_log() as logs:
            check_shared_memory(tmp_path)
        assert [each["event"] for each in logs] == ["mount.small"] * is_small
