"""The flags about checkpoints, through the whole of `elasticd run`'s reading."""

import json

import pytest

from elasticd.cli.run.request import parse
from elasticd.cli.run.storage_flags import checkpoint_of, owner_of
from elasticd.errors import CallError
from elasticd.records.checkpoint import CheckpointSpec, Every
from elasticd.records.ids import JobName

URL = ["--checkpoint", "s3://bucket/run"]

FLAGS = {
    "--checkpoint-every": "1steps",
    "--checkpoint-upload-every": "5m",
    "--mirror-bandwidth": "1GiB/s",
    "--storage-options": '{"anon": true}',
    "--checkpoint-keep": "7",
    "--checkpoint-keep-every": "1000",
    "--checkpoint-copy": "blocking",
    "--checkpoint-timeout": "30",
}


def refused(*flags: str, environ: dict[str, str] | None = None) -> str:
    """The sentence with which a call is refused."""
    with pytest.raises(CallError) as caught:
        parse([*flags, "train.py"], environ or {})
    said = str(caught.value)
    assert said.endswith(".") and "\n" not in said
    return said


def test_without_the_flag_nothing_is_saved() -> None:
    """Checkpoints are asked for."""
    assert parse(["train.py"], {}).draft.checkpoint is None


@pytest.mark.parametrize("flag", ["--checkpoint", "--tensorboard", "--bundle"])
def test_memory_of_one_process_is_no_storage(flag: str) -> None:
    """It takes every write; or somebody trains for a week and believes that it was saved."""
    said = refused(flag, "memory://x/y")
    assert said.startswith(f"{flag} memory://x/y is the memory of one process")


def test_url_alone_is_enough() -> None:
    """All else has a default."""
    found = parse([*URL, "path/to/train.py"], {}).draft.checkpoint
    assert found == CheckpointSpec(url="s3://bucket/run", owner="train.py")
    assert (found.every, found.keep_last, found.copy) == (Every(seconds=60.0), 3, "auto")
    assert found.timeout_s == 120.0 and found.keep_every_steps == 0


def test_every_flag_says_what_it_says() -> None:
    """And comes as far as the job's record."""
    flags = [text for pair in FLAGS.items() for text in pair]
    request = parse([*URL, *flags, "--job", "j", "train.py"], {})
    assert request.draft.checkpoint == CheckpointSpec(
        url="s3://bucket/run", owner="j", options={"anon": True}, every=Every(steps=1),
        upload_every=Every(seconds=300.0), mirror_bytes_per_s=1 << 30,
        keep_last=7, keep_every_steps=1000, copy="blocking", timeout_s=30.0,
    )  # fmt: skip
    assert request.spec(name=JobName("j"), uid="u", here="/").checkpoint == request.draft.checkpoint


@pytest.mark.parametrize("flag", FLAGS)
def test_flag_that_says_how_wants_one_that_says_where(flag: str) -> None:
    """Or somebody trains for a week and believes that it was saved."""
    said = refused(flag, FLAGS[flag])
    assert said.startswith(f"{flag} ") and "--checkpoint URL" in said
    name = "ELASTICD_" + flag.removeprefix("--").replace("-", "_").upper()
    assert refused(environ={name: FLAGS[flag]}) == said


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--checkpoint-every", "often"), ("--checkpoint-every", "0"),
        ("--checkpoint-every", "1e999steps"), ("--checkpoint-every", "-5s"),
        ("--checkpoint-upload-every", "60s"), ("--checkpoint-upload-every", "often"),
        ("--mirror-bandwidth", "200M"), ("--mirror-bandwidth", "10Gbit/s"),
        ("--mirror-bandwidth", "0MB/s"),
        ("--checkpoint-keep", "-1"), ("--checkpoint-keep", "many"), ("--checkpoint-keep", "1.5"),
        ("--checkpoint-keep", "9" * 5000),
        ("--checkpoint-keep-every", "-1"), ("--checkpoint-keep-every", "10steps"),
        ("--checkpoint-copy", "fast"), ("--checkpoint-copy", "AUTO"),
        ("--checkpoint-timeout", "-1"), ("--checkpoint-timeout", "nan"),
        ("--checkpoint-timeout", "inf"), ("--checkpoint-timeout", "2m"),
        ("--storage-options", "{"), ("--storage-options", "[1]"), ("--storage-options", "anon"),
        ("--storage-options", "null"), ("--storage-options", "{'a': 1}"),
    ],
)  # fmt: skip
def test_bad_value_is_refused_by_the_name_of_its_flag(flag: str, value: str) -> None:
    """In one sentence."""
    assert flag in refused(*URL, f"{flag}={value}").split()[0]


@pytest.mark.parametrize(
    "url",
    [
        "floppy://a/b", "s3://", "file://a/b", "s3://user:hunter2@bucket/run",
        "s3://bucket/run?token=hunter2", "gs://user:hunter2@bucket/run",
    ],
)  # fmt: skip
def test_bad_url_is_refused_without_its_secret(url: str) -> None:
    """A command line is seen by all, and a job's record by many."""
    said = refused("--checkpoint", url)
    assert said.startswith("--checkpoint") and "hunter2" not in said


@pytest.mark.parametrize(
    "options",
    [
        {"key": "hunter2"}, {"secret": "hunter2"}, {"client_kwargs": {"aws_session_token":
        "hunter2"}}, {"endpoint_url": "http://user:hunter2@host:9000"}, {"password": ["hunter2"]},
    ],
    ids=str,
)  # fmt: skip
def test_secret_in_the_options_is_refused_and_not_repeated(options: dict[str, object]) -> None:
    """It may be named: a variable or a file of the nodes."""
    said = refused(*URL, "--storage-options", json.dumps(options))
    assert "hunter2" not in said and "env:NAME" in said


def test_secret_that_is_named_is_taken_as_it_stands() -> None:
    """It is looked up where it is used."""
    options = {"key": "env:KEY", "secret": "file:/run/secret"}
    found = parse([*URL, "--storage-options", json.dumps(options), "train.py"], {}).draft.checkpoint
    assert found is not None and found.options == options


def test_empty_values_of_the_environment_are_as_none() -> None:
    """A template that leaves a variable empty means nothing by it."""
    assert parse(["train.py"], {"ELASTICD_CHECKPOINT": ""}).draft.checkpoint is None
    found = parse([*URL, "train.py"], {"ELASTICD_STORAGE_OPTIONS": ""}).draft.checkpoint
    assert found is not None and found.options == {}


def test_owner_is_the_job_else_the_script() -> None:
    """A run that is repeated under another automatic name finds its checkpoints again."""
    assert owner_of("job", "a/b.py") == "job"
    assert owner_of(None, "a/b.py") == owner_of("", "/c/b.py") == "b.py"
    assert owner_of(None, "pkg.train") == "pkg.train"


def test_values_need_not_come_from_a_command_line() -> None:
    """They are those of the flags, by their names."""
    names = ["checkpoint", *(flag.removeprefix("--").replace("-", "_") for flag in FLAGS)]
    assert checkpoint_of(dict.fromkeys(names), "me") is None
    values = dict.fromkeys(names) | {"checkpoint": "file:///a"}
    assert checkpoint_of(values, "me") == CheckpointSpec(url="file:///a", owner="me")
