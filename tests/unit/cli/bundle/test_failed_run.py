"""`elasticd run --bundle`: made when a job failed; whatever goes wrong is one sentence."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.bundle.destination import Destination
from elasticd.cli.bundle import command
from elasticd.cli.bundle.failed_run import bundle_failed
from elasticd.cli.progress.screen import Screen
from elasticd.cli.record_source import RecordSource
from elasticd.cli.run.request import parse
from elasticd.control import jobs
from elasticd.errors import CallError, Unavailable
from tests.unit.cli.bundle.conftest import JOB, Site, files_of
from tests.unit.control.world_case import KEYS


def made(site: Site, place: Destination, *, is_json: bool = False, host: str = "") -> None:
    @contextmanager
    def opened() -> Iterator[RecordSource]:
        yield site.source

    spec = jobs.find_spec(site.store, KEYS, JOB)
    screen = Screen(is_json=is_json, is_quiet=True)
    bundle_failed(opened, spec, place, screen, {"NAMED": "canary-named"}, host=host)


def test_it_is_written_and_said(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    """Also with --quiet: a failure is told in any case. Hosts that call together do not collide."""
    made(site, Destination(folder=f"file://{site.here}/out"), host="node-7")
    (path,) = (site.here / "out").iterdir()
    assert path.name.endswith("-node-7.tar.gz")
    assert "run/j/records.json" in files_of(path)
    assert f"[elasticd] Wrote {path}" in capfd.readouterr().err


def test_what_cannot_be_written_is_one_sentence(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    """It raises nothing: the exit code is the job's."""
    made(site, Destination(folder=f"file://{site.here}/token"))
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert "no bundle was made: No bundle was written: " in err
    assert "`elasticd bundle j --to URL` makes one" in err


@pytest.mark.parametrize(
    "error", [Unavailable("etcd is away."), OSError(5, "bad"), KeyError("x"), KeyboardInterrupt()]
)
def test_no_error_whatever_ends_the_run(
    site: Site,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    """A bug of ours neither, nor somebody who is tired of waiting."""

    def fails(*args: object, **more: object) -> None:
        raise error

    monkeypatch.setattr("elasticd.cli.bundle.failed_run.make", fails)
    made(site, Destination(folder=f"file://{site.here}"), is_json=True)
    told = json.loads(capfd.readouterr().err)
    assert told["event"] == "run.bundled" and told["data"]["why"]


def test_options_of_the_checkpoint_are_taken_for_storage_of_its_kind(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle on s3 beside checkpoints on s3 needs the same; another place would refuse them."""
    given: list[object] = []

    def write(place: object, data: object, options: object, environ: object) -> None:
        given.append(options)

    monkeypatch.setattr(command, "write", write)
    spec = jobs.find_spec(site.store, KEYS, JOB)
    assert spec.checkpoint is not None
    kept = replace(spec.checkpoint, url="s3://b/x")
    for folder in ("s3://other", "gs://other"):
        bundle_failed(
            _opener(site), replace(spec, checkpoint=kept), Destination(folder=folder),
            Screen(), {},
        )  # fmt: skip
    assert given == [spec.checkpoint.options, {}]


def test_flag_is_read_and_refused_where_nobody_waits(tmp_path: Path) -> None:
    """`--bundle` of a call, or ELASTICD_BUNDLE for all of them."""
    assert parse(["t.py"], {}).bundle is None
    place = Destination(folder="s3://b/x")
    assert parse(["--bundle", "s3://b/x", "t.py"], {}).bundle == place
    assert parse(["t.py"], {"ELASTICD_BUNDLE": "s3://b/x"}).bundle == place
    with pytest.raises(CallError, match="leave --detach out"):
        parse(["--bundle", "x", "--detach", "--etcd", "h:1", "t.py"], {})
    with pytest.raises(CallError, match="--bundle: leave credentials"):
        parse(["--bundle", "s3://u:p@b/x", "t.py"], {})


def _opener(site: Site):  # type: ignore[no-untyped-def]
    @contextmanager
    def opened() -> Iterator[RecordSource]:
        yield site.source

    return opened
