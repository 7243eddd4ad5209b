"""`elasticd run --tensorboard`, read back by TensorBoard itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.cluster import SCRIPTS
from tests.fixtures.event_reader import shown
from tests.fixtures.local_run import LocalRun

STEPS = 24
"""Of three epochs of `tiny_elastic`."""


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalRun]:
    folder = tmp_path / "here"
    folder.mkdir()
    local = LocalRun(folder)
    yield local
    local.mark.kill_all()


def steps(local: LocalRun, run: str) -> list[int]:
    return [step for step, _ in shown(local.folder / "events")[run]["loss"]]


def test_each_step_shows_once_though_rank_zero_was_killed(local: LocalRun) -> None:
    """It was on another node then; the folder is whole when the call returns, and nothing runs."""
    flags = ("--job", "killed", "--local-agents", "2", "--tensorboard", "events")
    trick = ("--trick", "kill", "--at-step", "9", "--step-s", "0.01")
    ended = local.run(*flags, str(SCRIPTS / "tiny_elastic.py"), *trick)
    assert ended.code == 0, ended.err
    assert steps(local, "killed/1") == list(range(1, STEPS + 1))
    nodes = {path.name.split(".")[-1] for path in local.folder.glob("events/killed/1/events*")}
    assert nodes == {"local-0", "local-1"}
    assert "TensorBoard" not in ended.err
    local.mark.wait_none_left()


def test_restart_mode_shows_what_progress_was_told(local: LocalRun) -> None:
    """From the first step of the worker that came after the one that failed."""
    (local.folder / "end").touch()
    flags = ("--job", "told", "--nproc-per-node", "2", "--tensorboard", "events")
    ended = local.run(*flags, str(SCRIPTS / "told.py"), str(local.folder))
    assert ended.code == 0, ended.err
    assert steps(local, "told/1") == [*range(11, 21), *range(21, 31)]
