"""Which values count as secrets, and which everybody may read."""

from pathlib import Path

import pytest

from elasticd.bundle.secret import (
    is_secret_name,
    masked_args,
    masked_options,
    secrets_of_environ,
    secrets_of_options,
    secrets_of_spec,
)
from elasticd.records.checkpoint import CheckpointSpec
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec


def spec(
    *args: str,
    env: dict[str, str] | None = None,
    options: dict[str, object] | None = None,
) -> JobSpec:
    return JobSpec(
        name=JobName("j"),
        uid="u",
        entry_kind=EntryKind.SCRIPT,
        entry="t.py",
        args=args,
        env=env or {},
        checkpoint=CheckpointSpec(url="s3://b/x", owner="j", options=options or {}),
    )


def values(
    *args: str, env: dict[str, str] | None = None, options: dict[str, object] | None = None
) -> set[str]:
    found = secrets_of_spec(spec(*args, env=env, options=options), {"NAMED": "value-of-named"})
    return {secret.value for secret in found}


@pytest.mark.parametrize(
    "name",
    ["WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "db-password", "wandb.api_key", "HF_TOKEN", "KEY"],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["LR", "monkey", "PATH", "keyboard", "BATCH_SIZE", "keys_file"])
def test_other_names(name: str) -> None:
    assert not is_secret_name(name)


def test_every_variable_of_a_job_is_one_but_what_all_know() -> None:
    """Only who gave it knows what it is."""
    env = {
        "ANYTHING": "canary-1",
        "SHORT": "abc",
        "SEED": "123456",
        "NCCL_DEBUG": "INFO-INFO",
        "DATA_DIR": "/data/imagenet",
        "TOKEN_FILE": "/run/canary-2",
        "DATABASE": "postgres://me:canary-3@host/db",
    }
    found = values(env=env)
    assert {"canary-1", "/run/canary-2", "canary-3"} <= found
    assert not found & {"abc", "123456", "INFO-INFO", "/data/imagenet"}


def test_arguments_that_say_that_they_are_secret_are() -> None:
    """In the three forms in which scripts take them."""
    args = ("--lr", "0.1", "--api-key", "canary-1", "--token=canary-2", "wandb.api_key=canary-3")
    assert values(*args) == {"canary-1", "canary-2", "canary-3"}
    assert masked_args(args) == [
        "--lr", "0.1", "--api-key", "***", "--token=***", "wandb.api_key=***",
    ]  # fmt: skip
    assert masked_args(["--password", "--verbose"]) == ["--password", "--verbose"]


def test_options_are_read_where_they_name_a_variable_or_a_file(tmp_path: Path) -> None:
    """What stands in the record is the name, what stands in a log would be the value."""
    path = tmp_path / "token"
    path.write_text("canary-4\n")
    options: dict[str, object] = {
        "key": "env:NAMED",
        "secret": f"file:{path}",
        "profile": "canary-5",
        "endpoint_url": "http://host:9000",
        "client_kwargs": {"deep": ["canary-6"]},
        "missing": "file:/nowhere",
    }
    assert values(options=options) == {"value-of-named", "canary-4", "canary-5", "canary-6"}
    assert masked_options(options) == {
        "key": "env:NAMED",
        "secret": f"file:{path}",
        "profile": "***",
        "endpoint_url": "***",
        "client_kwargs": {"deep": ["***"]},
        "missing": "file:/nowhere",
    }
    assert not secrets_of_options({"anon": True, "none": None}, {})


def test_environment_counts_by_its_names_and_the_files_that_it_names(tmp_path: Path) -> None:
    """What a node's workers inherit may be printed by any of them."""
    path = tmp_path / "credentials"
    path.write_text("canary-in-file")
    environ = {
        "WANDB_API_KEY": "canary-1",
        "PWD": "/home/me",
        "HOME": "/home/me",
        "EDITOR": "vim-with-a-long-name",
        "GOOGLE_APPLICATION_CREDENTIALS": str(path),
        "SSH_AUTH_SOCK": "/tmp/not-a-file",
    }
    found = {secret.value for secret in secrets_of_environ(environ)}
    assert {"canary-1", "canary-in-file"} <= found
    assert not found & {"/home/me", "vim-with-a-long-name", str(path)}
