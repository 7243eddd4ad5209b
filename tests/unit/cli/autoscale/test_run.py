"""What `elasticd autoscale run` takes and refuses, before it does anything."""

from pathlib import Path

import pytest

from elasticd.cli.main import main

ETCD = ("--etcd", "http://127.0.0.1:1")
PROMETHEUS = ("--prometheus", "http://127.0.0.1:2")
CALLS = [
    ((), "An autoscaler needs etcd: give --etcd"),
    ((*ETCD, *PROMETHEUS, "--period", "0"), "--period 0 is below 0.1 seconds"),
    ((*ETCD, *PROMETHEUS, "--period", "often"), "'often' is no duration"),
    ((*ETCD, *PROMETHEUS, "--lease-ttl", "1s"), "--lease-ttl 1 is below 2 seconds"),
    ((*ETCD, *PROMETHEUS, "--lease-ttl", "1e300h"), "e+303 is above 86400 seconds"),
    ((*ETCD, *PROMETHEUS, "--period", "2d"), "--period 172800 is above 86400 seconds"),
    ((*ETCD, *PROMETHEUS, "--listen", "9481"), "--listen 9481 is no address"),
    ((*ETCD, *PROMETHEUS, "--listen", "host:70000"), "--listen host:70000 is no address"),
    ((*ETCD, *PROMETHEUS, "--listen", ":1"), "--listen :1 is no address"),
    ((*ETCD, "--prometheus", "prometheus:9090"), "http://host:9090"),
    (("--dry-run",), "An autoscaler needs etcd: give --etcd"),
    ((*ETCD, *PROMETHEUS, "--dry-run=yes"), "'--dry-run' does not take a value"),
    ((*ETCD, *PROMETHEUS, "--dry-run", "yes"), "yes"),
    ((*ETCD, *PROMETHEUS, "--dry-run", "--period", "0"), "--period 0 is below 0.1 seconds"),
    ((*ETCD, "--token-file", "t"), "--token-file is for Prometheus"),
    ((*ETCD, *PROMETHEUS, "--user", "u"), "--user and --password-file belong together"),
    (
        (*ETCD, *PROMETHEUS, "--user", "u", "--password-file", "p", "--token-file", "t"),
        "two ways to log in",
    ),
]


@pytest.mark.parametrize(("flags", "said"), CALLS, ids=lambda value: str(value)[-30:])
def test_what_cannot_be_used_is_said_in_one_sentence(
    flags: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the flag, its value and what to write instead."""
    assert main(["autoscale", "run", *flags]) == 2
    shown = capfd.readouterr().err
    assert said in shown and shown.count("\n") == 1 and "Traceback" not in shown


def test_flags_are_read_from_the_environment_too(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As a unit of systemd and a container have them."""
    monkeypatch.setenv("ELASTICD_ETCD", "http://127.0.0.1:1")
    monkeypatch.setenv("ELASTICD_PROMETHEUS", "nonsense")
    assert main(["autoscale", "run"]) == 2
    assert "nonsense" in capfd.readouterr().err
    monkeypatch.setenv("ELASTICD_PROMETHEUS", "http://127.0.0.1:2")
    monkeypatch.setenv("ELASTICD_LISTEN", "nowhere")
    assert main(["autoscale", "run"]) == 2
    assert "--listen nowhere" in capfd.readouterr().err
    monkeypatch.setenv("ELASTICD_LISTEN", "127.0.0.1:0")
    monkeypatch.setenv("ELASTICD_PROMETHEUS_TOKEN_FILE", str(tmp_path / "none"))
    assert main(["autoscale", "run"]) == 2
    assert f"{tmp_path / 'none'}" in capfd.readouterr().err


@pytest.mark.parametrize("flag", ["--token-file", "--ca-file"])
def test_file_that_is_missing_is_named_before_etcd_is_asked(
    flag: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """etcd is not there either, but what a person has mistyped comes first."""
    missing = str(tmp_path / "missing")
    https = ("--prometheus", "https://127.0.0.1:2")
    assert main(["autoscale", "run", *ETCD, *https, flag, missing]) == 2
    shown = capfd.readouterr().err
    assert missing in shown and "http://127.0.0.1:1" not in shown and shown.count("\n") == 1
