"""`elasticd run --tensorboard`, read back by TensorBoard itself."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.checkpoint.storage.location import open_unprobed
from elasticd.tensorboard.message import Scalars, name_block
from elasticd.tensorboard.writer.buffer import Buffer
from elasticd.tensorboard.writer.file_writer import FileWriter
from tests.fixtures.cluster import SCRIPTS, until
from tests.fixtures.event_reader import shown
from tests.fixtures.local_run import LocalRun
from tests.fixtures.s3 import moto_server, new_bucket

STEPS = 24
"""Of three epochs of `tiny_elastic`."""


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalRun]:
    folder = tmp_path / "here"
    folder.mkdir()
    local = LocalRun(folder, shares_server=True)
    yield local
    local.mark.kill_all()


def steps(local: LocalRun, run: str) -> list[int]:
    return [step for step, _ in shown(local.folder / "events")[run]["loss"]]


def test_each_step_shows_once_though_rank_zero_was_killed(local: LocalRun) -> None:
    """It was on another node then; the folder is whole when the call returns, and nothing runs."""
    flags = ("--job", "killed", "--local-agents", "2", "--tensorboard", "events")
    trick = ("--trick", "kill", "--at-step", "9", "--gates", "9")
    call = local.call(*flags, str(SCRIPTS / "tiny_elastic.py"), *trick)
    # What a rank told dies with it, until its node's writer is there: that takes a second.
    events = local.folder / "events" / "killed" / "1"
    until(lambda: list(events.glob("events*.local-0")), lambda: call.err)
    (local.folder / "gate-9").touch()
    ended = call.wait()
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


def test_bucket_is_read_by_tensorboard_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """From S3, in which nothing is renamed and nothing grows."""
    with moto_server() as endpoint_url:
        place = new_bucket(endpoint_url, "events", monkeypatch)
        told: list[str] = []
        step = 0
        for generation in (1, 2, 3):
            buffer = Buffer(lambda: 0.0)
            writer = FileWriter(
                buffer,
                lambda: open_unprobed(place.url, place.options, os.environ),
                folder="job",
                uid="0123456789abcdef",
                node=f"node-{generation}",
                job="job",
                tell=told.append,
            )
            part = buffer.begin(generation, step)
            for each in range(step + 1, step + 11):
                names, values = name_block(["loss"]), [float(generation)]
                message = Scalars(at_unix_s=1.0, step=each, names=names, values=values)
                buffer.take(part, message)
            buffer.end(part)
            assert writer.turn(), told
            step += 8
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint_url)
        found = shown(place.url)["job/1"]["loss"]
    assert told == []
    assert [each for each, _ in found] == list(range(1, 27))
    assert [value for _, value in found] == [1.0] * 8 + [2.0] * 8 + [3.0] * 10
