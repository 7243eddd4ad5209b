"""Another job's checkpoints are refused before a job begins, by one request if that tells."""

import errno
import os
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.committer import Committer
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.format.layout import entry_name
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.location import open_bucket
from elasticd.cli.run import checkpoint_location
from elasticd.cli.run.checkpoint_location import check_location
from elasticd.errors import CallError
from elasticd.records.checkpoint import CheckpointSpec
from tests.fixtures.s3 import give_keys
from tests.fixtures.scripted_s3 import Answer, ScriptedS3


def held(bucket: Bucket, job: str = "first") -> None:
    """Have this job begin to write there, twice."""
    for uid in ("a", "b"):
        Committer(bucket=bucket, log=CommitLog(bucket), uid=uid, job=job).open(1, 0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    held(open_bucket(f"file://{tmp_path}/run", {}, {}))
    return f"file://{tmp_path}/run"


def test_other_jobs_url_is_refused_with_what_to_do(url: str) -> None:
    """In the sentence of the keepers."""
    with pytest.raises(CallError) as caught:
        check_location(CheckpointSpec(url=url, owner="second"), {})
    assert str(caught.value) == (
        f"{url} holds the checkpoints of the job first, not of second: give another URL, or the "
        "same --job to go on from them."
    )


def test_own_and_new_urls_are_taken(url: str) -> None:
    """Also a job without checkpoints."""
    check_location(None, {})
    check_location(CheckpointSpec(url=url, owner="first"), {})
    check_location(CheckpointSpec(url=f"{url}-new", owner="second"), {})


def test_folder_here_need_not_be_that_of_the_nodes(url: str) -> None:
    """Where daemons of other machines run the job."""
    check_location(CheckpointSpec(url=url, owner="second"), {}, is_node=False)


def test_entry_that_cannot_be_read_refuses_nothing(url: str) -> None:
    """The keepers look at the others."""
    Path(url.removeprefix("file://"), entry_name(1)).write_bytes(b"{")
    check_location(CheckpointSpec(url=url, owner="second"), {})


def test_bucket_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the daemons get the job, too."""
    give_keys(monkeypatch)
    with ScriptedS3() as s3:
        held(open_bucket(s3.place.url, s3.place.options, os.environ))
        s3.seen.clear()
        spec = CheckpointSpec(url=s3.place.url, owner="second", options=s3.place.options)
        monkeypatch.setattr(checkpoint_location, "LIMIT_S", None)
        with pytest.raises(CallError, match="holds the checkpoints of the job first"):
            check_location(spec, {}, is_node=False)
        assert len(s3.seen) == 1


@pytest.mark.parametrize("answer", [Answer.HANG, Answer.ERROR, Answer.EXPIRED], ids=str)
def test_storage_that_is_away_refuses_nothing(
    monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    """It may be back when the first checkpoint is due."""
    give_keys(monkeypatch)
    monkeypatch.setattr(checkpoint_location, "LIMIT_S", 0.3)
    with ScriptedS3() as s3:
        s3.add(answer)
        check_location(CheckpointSpec(url=s3.place.url, owner="x", options=s3.place.options), {})
    options = {"key": "env:NOT_SET_HERE"}
    check_location(CheckpointSpec(url="s3://bucket/run", owner="x", options=options), {})


@pytest.mark.parametrize(
    ("place", "why"),
    [("file/run", "Not a directory"), ("file", "File exists"), ("/proc/x", "No such file")],
)
def test_folder_that_cannot_be_written_is_refused_at_the_start(
    tmp_path: Path, place: str, why: str
) -> None:
    """Only the keepers said so, when the workers had been started."""
    (tmp_path / "file").write_text("no folder")
    spec = CheckpointSpec(url=f"file://{tmp_path / place}", owner="first")
    with pytest.raises(CallError, match=rf"cannot be written \({why}.*choose another --checkpoint"):
        check_location(spec, {})
    check_location(spec, {}, is_node=False)


def test_disk_that_is_full_is_no_reason_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be room when the first checkpoint is due."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    check_location(CheckpointSpec(url=f"file://{tmp_path}", owner="first"), {})
