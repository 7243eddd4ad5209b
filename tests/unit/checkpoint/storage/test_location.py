"""URLs and options as users give them; a secret is named, never given."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticd.checkpoint.format.layout import (
    LAST_STEP,
    Snapshot,
    is_part_name,
    loss_name,
    part_name,
)
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.location import (
    MOST_PATH_BYTES,
    checked_options,
    checked_url,
    open_bucket,
    resolved,
)
from elasticd.errors import CallError, EnvironmentProblem


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("run/1", "file:///here/run/1"), ("/a/../b", "file:///b"), ("file:///a//b/", "file:///a/b"),
        ("local:///a", "file:///a"), ("s3://bucket/run/", "s3://bucket/run"),
        ("s3://bucket", "s3://bucket"), ("gs://b/r", "gs://b/r"),
        ("abfs://container@account.dfs/r", "abfs://container@account.dfs/r"),
        ("./s3:x", "file:///here/s3:x"), ("s3x:y", "file:///here/s3x:y"),
    ],
)  # fmt: skip
def test_url_is_made_full(given: str, full: str) -> None:
    """Each node sees the same place, whatever its current folder."""
    assert checked_url(given, "/here") == full


@pytest.mark.parametrize(
    "given",
    [
        "floppy://a/b", "://x", "file://a/b", "s3://", "s3:///", "s3://key:secret@bucket/run",
        "s3://key@bucket/run", "s3://bucket/run?token=x", "gs://user:pw@b/r", "s3://[bucket/run",
        "abfs://container:pw@account/r", "simplecache::s3://bucket/run",
    ],
)  # fmt: skip
def test_url_that_is_none_or_holds_credentials_is_refused(given: str) -> None:
    """In one sentence that does not repeat the secret."""
    with pytest.raises(CallError) as caught:
        checked_url(given, "/here")
    said = str(caught.value)
    assert "--checkpoint" in said and said.endswith(".")
    assert "secret" not in said and "pw@" not in said


@pytest.mark.parametrize(
    ("given", "here", "said"),
    [
        (
            "s3:bucket/run",
            "",
            "give s3://bucket/run, or ./s3:bucket/run for a folder of that name.",
        ),
        ("GS:/b/r", "", "give gs://b/r, or ./GS:/b/r for a folder of that name."),
        (
            "s3:bucket/run",
            "/",
            "give s3://bucket/run, or /s3:bucket/run for a folder of that name.",
        ),
        ("file:/a", "", "give the path without a scheme, or ./file:/a for a folder of that name."),
    ],
)
def test_url_without_its_slashes_is_no_folder(given: str, here: str, said: str) -> None:
    """Whoever gives it: a command, an ElasticJob, a script with DCP."""
    with pytest.raises(CallError) as caught:
        checked_url(given, here, flag="URL")
    assert str(caught.value) == (
        f"URL {given} is no URL, because two slashes are missing after the colon: {said}"
    )


@pytest.mark.parametrize(
    ("given", "here", "folder"),
    [
        ("~/ck", "", "./~/ck"),
        ("~", "", "./~"),
        ("file://~/ck", "", "./~/ck"),
        ("~/ck", "/", "/~/ck"),
    ],
)
def test_home_that_the_shell_did_not_put_in_is_no_folder(
    given: str, here: str, folder: str
) -> None:
    """As in `--checkpoint=~/ck`: it would be a folder of the name `~` in the present one."""
    with pytest.raises(CallError) as caught:
        checked_url(given, here)
    assert str(caught.value) == (
        f"--checkpoint {given} is no folder of your home, since the shell replaces ~ only where a "
        f"word begins with it: give the path in full, or {folder} for a folder of that name."
    )
    assert checked_url("./~/ck", "/here") == "file:///here/~/ck"
    assert checked_url("~ck", "/here") == "file:///here/~ck"


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_name_that_no_file_system_takes_is_refused(scheme: str) -> None:
    """Rank 0 said so, below a traceback, where the job ran on other nodes."""
    with pytest.raises(CallError) as caught:
        checked_url(f"{scheme}/data/{'a' * 256}", "/here")
    assert str(caught.value) == (
        "--checkpoint has a name of 256 characters between two slashes, and file systems take 255: "
        "give a shorter one."
    )
    longest = f"{scheme}{'/abcdefghi' * 400}"
    assert checked_url(f"{longest}/", "/here") == f"file://{'/abcdefghi' * 400}"
    with pytest.raises(CallError) as caught:
        checked_url(f"{longest}/a", "/here", flag="--tensorboard")
    assert str(caught.value) == (
        "--tensorboard is a path of 4002 bytes, and the names of checkpoints leave room for 4000: "
        "give a shorter one."
    )
    assert checked_url(f"{scheme}/{'ä' * 255}", "/") == f"file:///{'ä' * 255}", "cifs takes it"


def test_longest_path_leaves_room_for_the_longest_name() -> None:
    snapshot = Snapshot(run=10**9 - 1, generation=10**12 - 1, step=LAST_STEP)
    part = part_name(10**7 - 1, 9, "f" * 8, 10**7 - 1)
    assert is_part_name(part)
    names = (f"{snapshot.folder}/{part}", loss_name(snapshot, 10**7 - 1, 9))
    assert MOST_PATH_BYTES + 1 + max(map(len, names)) < 4096, "and the NUL at its end"


def test_memory_of_one_process_is_no_storage() -> None:
    """It takes every write; or somebody trains for a week and believes that it was saved."""
    with pytest.raises(CallError) as caught:
        checked_url("memory://x/y", flag="URL")
    assert str(caught.value) == (
        "URL memory://x/y is the memory of one process, gone when that ends: give a folder, or "
        "s3://BUCKET/FOLDER."
    )


@pytest.mark.parametrize(
    "options",
    [
        {"secret": "hunter2"}, {"key": "hunter2"}, {"client_kwargs": {"aws_secret_access_key":
        "hunter2"}}, {"PassWord": "hunter2"}, {"password": 12345}, {"auth": ["hunter2"]},
        {"all": [{"token": "hunter2"}]}, {"a": {"b": {"sas_token": "hunter2"}}},
        {"endpoint_url": "http://user:hunter2@host:9000"}, {"proxies": ["http://u:hunter2@h"]},
    ],
    ids=str,
)  # fmt: skip
def test_secret_that_is_given_is_refused(options: dict[str, Any]) -> None:
    """However deep, and not repeated in the error."""
    with pytest.raises(CallError, match="secret") as caught:
        checked_options(json.dumps(options))
    assert "hunter2" not in str(caught.value)


def test_options_without_a_secret_are_taken_as_they_are() -> None:
    """Also where a secret is named, or is none."""
    for options in (
        {"endpoint_url": "http://host:9000", "anon": True, "use_ssl": False},
        {"key": "env:KEY", "secret": "file:/run/secret", "token": None},
        {"client_kwargs": {"region_name": "eu-central-1"}, "config_kwargs": {"max": [1, 2]}},
    ):
        assert checked_options(json.dumps(options)) == options
    assert checked_options("") == {}


@pytest.mark.parametrize("text", ["{", "[]", "5", "null", '"a"', "[" * 100_000, "{'a': 1}"])
def test_options_that_are_no_json_object_are_refused(text: str) -> None:
    """Python's notation is a common mistake."""
    with pytest.raises(CallError, match="--storage-options"):
        checked_options(text)


def test_names_of_secrets_are_resolved_here(tmp_path: Path) -> None:
    """At any depth; whitespace around a file's secret is none of it."""
    (tmp_path / "secret").write_text("  two\n")
    options = {"a": "env:A", "b": {"c": f"file:{tmp_path}/secret", "d": ["env:A", 1]}, "e": 5}
    found = resolved(options, {"A": "one"})
    assert found == {"a": "one", "b": {"c": "two", "d": ["one", 1]}, "e": 5}


def test_name_that_stands_for_nothing_here_is_said(tmp_path: Path) -> None:
    """A variable that is not set, a file that is not there or is no text."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for value in ("env:MISSING", f"file:{tmp_path}/missing", f"file:{tmp_path}/binary"):
        with pytest.raises(CallError, match="secret") as caught:
            resolved({"secret": value}, {})
        assert str(caught.value).endswith(".")


def test_url_opens_as_a_bucket(tmp_path: Path) -> None:
    """That writes and reads."""
    for url in (f"file://{tmp_path}/run", "memory://test-location"):
        bucket: Bucket = open_bucket(url, {}, {})
        assert bucket.url == url
        bucket.replace("a", b"1")
        assert bucket.read("a", 1) == b"1"


def test_folder_takes_no_options() -> None:
    """They would lead past the one way of writing to it that is safe."""
    with pytest.raises(CallError, match="auto_mkdir"):
        open_bucket("file:///tmp/run", {"auto_mkdir": True}, {})


def test_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    for name in ("gcsfs", "gcsfs.core"):
        monkeypatch.setitem(sys.modules, name, None)  # As where it is not installed.
    monkeypatch.delitem(sys.modules, "elasticd.checkpoint.storage.gcs", raising=False)
    with pytest.raises(EnvironmentProblem, match="pip install gcsfs"):
        open_bucket("gs://bucket/run", {}, {})
