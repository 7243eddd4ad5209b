"""The thread that looks at the files of a job's workers."""

from pathlib import Path

import pytest

from elasticd_agent.output_watch.silence import Heard, News, Silent
from elasticd_agent.output_watch.watch import OutputWatch
from elasticd_agent.worker_env import WorkerFiles


def files_in(folder: Path, name: str = "rank-0") -> WorkerFiles:
    return WorkerFiles(
        out=folder / f"{name}.out", err=folder / f"{name}.err", error=folder / f"{name}.json"
    )


@pytest.fixture
def told() -> list[News]:
    return []


@pytest.fixture
def watch(told: list[News], monkeypatch: pytest.MonkeyPatch) -> OutputWatch:
    """One whose thread leaves the looking to the test."""
    made = OutputWatch(2.0, told.append)
    monkeypatch.setattr(made, "_run", lambda: None)
    return made


def test_both_streams_count_as_output(tmp_path: Path, watch: OutputWatch, told: list[News]) -> None:
    """Files that are not there yet are empty."""
    files = files_in(tmp_path)
    watch.watch(7, files)
    for second in range(5):
        watch.look(float(second))
        if second == 3:
            files.err.write_text("warning")
    assert [type(news) for news in told] == [Silent, Heard]
    assert all(news.pid == 7 for news in told)


def test_process_that_was_forgotten_is_not_told(
    tmp_path: Path, watch: OutputWatch, told: list[News]
) -> None:
    """Also if that came while its files were looked at."""
    watch.watch(7, files_in(tmp_path))
    watch.look(0.0)
    watch.forget(7)
    watch.look(5.0)
    assert told == []


def test_without_a_limit_nothing_is_looked_at(tmp_path: Path, told: list[News]) -> None:
    """No thread, no calls to the file system."""
    watch = OutputWatch(0.0, told.append)
    watch.watch(7, files_in(tmp_path))
    watch.look(0.0)
    watch.look(100.0)
    watch.close()
    assert told == [] and watch._thread is None
