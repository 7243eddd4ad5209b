"""`elasticd checkpoint` against S3: the whole way, and what can be wrong with the way there."""

import json
import os
from collections.abc import Iterator

import pytest

from elasticd.checkpoint.commit.committer import Committer
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.storage.location import open_bucket
from elasticd.cli.main import main
from tests.fixtures.s3 import S3Place, moto_server, new_bucket, take_keys
from tests.unit.checkpoint.stock_case import Maker

Shown = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def endpoint_url() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def place(
    endpoint_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> S3Place:
    made = new_bucket(endpoint_url, request.node.name, monkeypatch)
    monkeypatch.setenv("ELASTICD_STORAGE_OPTIONS", json.dumps(made.options))
    return made


def made_at(place: S3Place, steps: int) -> Maker:
    maker = Maker(place.url)
    maker.bucket = open_bucket(place.url, place.options, os.environ)
    maker.log = CommitLog(maker.bucket)
    maker.committer = Committer(bucket=maker.bucket, log=maker.log, uid=maker.uid, job=maker.job)
    maker.open(1)
    for number in range(1, steps + 1):
        maker.save(10 * number)
    return maker


def call(capfd: Shown, *argv: str) -> tuple[int, str, str]:
    code = main(["checkpoint", *argv])
    shown = capfd.readouterr()
    return code, shown.out, shown.err


def test_the_whole_way_on_s3(place: S3Place, tmp_path: object, capfd: Shown) -> None:
    """List, verify, remove, sweep; the objects are gone and the leases too."""
    maker = made_at(place, 4)
    maker.put(5)
    code, out, _ = call(capfd, "ls", place.url, "--json")
    assert code == 0 and [each["step"] for each in json.loads(out)] == [40, 30, 20, 10]
    assert call(capfd, "show", place.url, "--step", "10")[0] == 0
    code, out, _ = call(capfd, "verify", place.url, "--all")
    assert code == 0 and out.count("good") == 4
    assert call(capfd, "rm", place.url, "--keep-last", "2")[0] == 0
    assert maker.folders() == [5, 30, 40]
    assert "nothing to sweep" in call(capfd, "sweep", place.url)[1]
    code, out, _ = call(capfd, "export", place.url, "--format", "torch", "--to", f"{tmp_path}/x")
    assert code == 0 and "checkpoint 5" in out
    assert maker.bucket.list("leases", 10, lambda name: True) == []


@pytest.mark.parametrize("command", ["ls", "verify", "sweep"])
def test_a_bucket_without_checkpoints_is_said(place: S3Place, command: str, capfd: Shown) -> None:
    """In the words of a folder without."""
    code, out, err = call(capfd, command, place.url)
    assert (code, out) == (2, "") and err == f"elasticd: There is no checkpoint at {place.url}.\n"


def test_a_bucket_that_does_not_exist_is_said(place: S3Place, capfd: Shown) -> None:
    """It is not the same as an empty one."""
    code, out, err = call(capfd, "ls", "s3://no-such-bucket-0000/x")
    assert (code, out) == (2, "") and "bucket that does not exist" in err and err.count("\n") == 1


def test_missing_credentials_are_said(
    place: S3Place, monkeypatch: pytest.MonkeyPatch, capfd: Shown
) -> None:
    """No permission, in one sentence."""
    take_keys(monkeypatch)
    code, out, err = call(capfd, "ls", place.url)
    assert (code, out) == (2, "") and "credentials" in err and err.count("\n") == 1


def test_an_endpoint_that_is_away_is_said(
    place: S3Place, monkeypatch: pytest.MonkeyPatch, capfd: Shown
) -> None:
    """After the patience of a person, not of a job."""
    monkeypatch.setenv("ELASTICD_STORAGE_OPTIONS", '{"endpoint_url": "http://127.0.0.1:9"}')
    code, out, err = call(capfd, "ls", place.url)
    assert (code, out) == (2, "") and "cannot be reached" in err and err.count("\n") == 1
