"""`--tensorboard`, through the whole of `elasticd run`'s reading."""

from pathlib import Path

import pytest

from elasticd.cli.run.request import parse
from elasticd.cli.run.storage_flags import check_event_folder
from elasticd.errors import CallError
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName
from elasticd.records.job import JobSpec
from elasticd.records.tensorboard import TensorBoardSpec

S3 = "s3://bucket/events"
OPTIONS = '{"anon": true}'


def found(*flags: str) -> TensorBoardSpec:
    spec = parse([*flags, "train.py"], {}).draft.tensorboard
    assert spec is not None
    return spec


def refused(*flags: str) -> str:
    """The sentence with which a call is refused."""
    with pytest.raises(CallError) as caught:
        parse([*flags, "train.py"], {})
    said = str(caught.value)
    assert said.endswith(".") and "\n" not in said
    return said


def test_without_the_flag_no_event_files_are_written() -> None:
    """They are asked for, by flag or environment."""
    assert parse(["train.py"], {}).draft.tensorboard is None
    environ = {"ELASTICD_TENSORBOARD": S3}
    assert parse(["train.py"], environ).draft.tensorboard == TensorBoardSpec(
        url=S3, folder="train.py"
    )


def test_it_comes_as_far_as_the_jobs_record() -> None:
    """The job's name is the folder's, or else that of the script."""
    request = parse(["--tensorboard", S3, "--job", "gpt", "train.py"], {})
    assert request.draft.tensorboard == TensorBoardSpec(url=S3, folder="gpt")
    spec = request.spec(name=JobName("gpt"), uid="u", here="/")
    assert decode(JobSpec, encode(spec)).tensorboard == request.draft.tensorboard
    assert found("--tensorboard", "events").url == f"file://{Path.cwd()}/events"


@pytest.mark.parametrize(
    ("flags", "of_events", "of_checkpoints"),
    [
        (["--tensorboard", S3], {"anon": True}, None),
        (["--tensorboard", S3, "--checkpoint", "s3://other"], {"anon": True}, {"anon": True}),
        (["--tensorboard", S3, "--checkpoint", "saved"], {"anon": True}, {}),
        (["--tensorboard", "events", "--checkpoint", S3], {}, {"anon": True}),
        (["--tensorboard", "gs://b", "--checkpoint", S3], {}, {"anon": True}),
    ],
)
def test_storage_options_are_for_the_urls_of_their_kind(
    flags: list[str], of_events: object, of_checkpoints: object
) -> None:
    """A folder takes none."""
    request = parse([*flags, "--storage-options", OPTIONS, "train.py"], {})
    assert request.draft.tensorboard is not None
    assert request.draft.tensorboard.options == of_events
    if of_checkpoints is not None:
        assert request.draft.checkpoint is not None
        assert request.draft.checkpoint.options == of_checkpoints


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--tensorboard", "nope://x/y"], "--tensorboard nope:// is no kind of storage"),
        (["--tensorboard", "s3://key:word@bucket"], "--tensorboard: leave credentials"),
        (["--tensorboard", "s3://"], "--tensorboard s3:// names no bucket"),
        (["--tensorboard", "file://a"], "three slashes"),
        (["--tensorboard", "events", "--storage-options", OPTIONS], "a folder takes none"),
        (["--tensorboard", S3, "--storage-options", '{"secret": "x"}'], "gives a secret"),
        (["--tensorboard", S3, "--checkpoint-every", "5m"], "add --checkpoint URL"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(flags: list[str], why: str) -> None:
    """Of the flag that it was given to."""
    assert why in refused(*flags)


def test_folder_that_cannot_be_written_is_refused_at_start(tmp_path: Path) -> None:
    """Where this machine is the one that writes."""
    (tmp_path / "file").write_text("no folder")
    bad = TensorBoardSpec(url=f"file://{tmp_path}/file/events", folder="j")
    with pytest.raises(CallError, match=r"cannot be written \(Not a directory\): choose another"):
        check_event_folder(bad)
    good = TensorBoardSpec(url=f"file://{tmp_path}/a/b", folder="j")
    check_event_folder(good)
    assert list((tmp_path / "a" / "b").iterdir()) == []
    check_event_folder(None)


def test_secret_that_is_not_there_is_refused_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where it is, nobody is asked for anything."""
    spec = TensorBoardSpec(url=S3, folder="j", options={"secret": "env:NO_SUCH"})
    with pytest.raises(CallError, match="NO_SUCH is not set here"):
        check_event_folder(spec)
    monkeypatch.setenv("NO_SUCH", "s")
    check_event_folder(spec)
