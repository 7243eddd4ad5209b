"""What deploy/ ships for the autoscaler calls a command that there is, with flags that it has."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from elasticd.cli.autoscale.run import run
from elasticd.cli.main import elasticd

DEPLOY = Path(__file__).parents[3] / "deploy"
UNIT = (DEPLOY / "systemd" / "elasticd-autoscaler.service").read_text()
ENVIRONMENT = (DEPLOY / "systemd" / "autoscaler.env").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
SERVICE = COMPOSE["services"]["autoscaler"]


def words_of_unit() -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.+)$", UNIT, re.MULTILINE)
    return shlex.split(line)


def checked(words: list[str]) -> None:
    """See that the command line parses these words."""
    assert words[0].rpartition("/")[2] == "elasticd"
    group = elasticd
    for number, word in enumerate(words[1:], start=1):
        assert isinstance(group, click.Group)
        found = group.get_command(click.Context(group), word)
        assert found is not None, f"there is no command {word}"
        group = found  # type: ignore[assignment]
        if not isinstance(found, click.Group):
            assert found is run
            run.make_context("run", words[number + 1 :])
            return
    raise AssertionError("it names no command")


def variables() -> set[str]:
    """All that the command reads from the environment."""
    found = {f"ELASTICD_{param.name}".upper() for param in run.params if param.name is not None}
    for param in run.params:
        if isinstance(param.envvar, str):
            found.discard(f"ELASTICD_{param.name}".upper())
            found.add(param.envvar)
    return found


@pytest.mark.parametrize("words", [words_of_unit(), SERVICE["command"]], ids=["unit", "compose"])
def test_command_is_one_that_there_is(words: list[str]) -> None:
    """Files that nobody calls rot."""
    checked(words)


def test_variables_are_read() -> None:
    """Each of them, by the command that the files start."""
    named = [line.partition("=")[0] for line in ENVIRONMENT.splitlines() if line[:1] != "#"]
    assert len(named) > 5
    for name in [*named, *SERVICE["environment"]]:
        assert name in variables(), name


def test_a_command_that_does_not_fit_is_found() -> None:
    """Else all of the above says nothing."""
    for words in (["elasticd", "autoscale", "runs"], ["elasticd", "autoscale", "run", "--perod"]):
        with pytest.raises((AssertionError, click.UsageError)):
            checked(words)
    assert "ELASTICD_PERIOD_S" not in variables() or "ELASTICD_TOKEN_FILE" not in variables()


def test_time_to_end_is_longer_than_the_lead_takes_to_give_back() -> None:
    """Two seconds for etcd, and one evaluation that is under way."""
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert int(seconds) >= 15 and SERVICE["stop_grace_period"] == f"{seconds}s"


def test_service_is_healthy_by_the_port_that_it_listens_on() -> None:
    """And shows no port to the host: there are two of them."""
    port = SERVICE["command"][-1].rpartition(":")[2]
    assert f":{port}/healthz" in SERVICE["healthcheck"]["test"][-1]
    assert SERVICE["expose"] == [port] and "ports" not in SERVICE
    assert SERVICE["deploy"]["replicas"] > 1


def test_image_has_what_the_autoscaler_imports() -> None:
    """By hand, since torch would make it a hundred times as large; as the package asks for it."""
    text = SERVICE["build"]["dockerfile_inline"].replace("\\\n", " ")
    line = next(line for line in text.splitlines() if line.startswith("RUN pip"))
    words = shlex.split(line.partition("&&")[0])
    named = [word for word in words[3:] if not word.startswith("--")]
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert set(named) <= set(project["dependencies"])
    code = (
        "import sys; "
        + "; ".join(f"import {name}" for name in IMPORTED)
        + (
            "; print(*{n.split('.')[0] for n, m in sys.modules.items() "
            "if 'site-packages' in (getattr(m, '__file__', '') or '')})"
        )
    )
    ended = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    packages = {"grpc": "grpcio", "google": "protobuf"}
    imported = {packages.get(name, name) for name in ended.stdout.split()} - INDIRECT
    assert imported == {re.split("[=<>]", name)[0] for name in named}


IMPORTED = (
    "elasticd.cli.main",
    "elasticd.cli.autoscale.run",
    "elasticd.leader.daemon",
    "elasticd.autoscale.loop.evaluation",
    "elasticd.leader.http_server",
    "elasticd.autoscale.prometheus.client",
    "elasticd.autoscale.direct.source",
    "elasticd.store.etcd",
)
"""What `elasticd autoscale run` imports, late or early."""
INDIRECT = {"six", "tenacity", "typing_extensions", "_distutils_hack", "elasticd", "elasticd_agent"}
"""What comes with those or with pip, and ourselves."""


def test_unit_is_one_that_systemd_understands(tmp_path: Path) -> None:
    """By its own tool where that is; by its form elsewhere."""
    sections = re.findall(r"^\[(\w+)\]$", UNIT, re.MULTILINE)
    assert sections == ["Unit", "Service", "Install"]
    for line in UNIT.splitlines():
        assert not line or line[0] in "#[" or re.match(r"[A-Z]\w+=(\S|$)", line), line
    tool = shutil.which("systemd-analyze")
    if tool is not None:
        unit = tmp_path / "elasticd-autoscaler.service"
        text = UNIT.replace("/opt/elasticd/bin/elasticd", "/bin/true").replace(
            "EnvironmentFile=", "EnvironmentFile=-"
        )
        unit.write_text(text.replace("User=elasticd", "User=root"))
        ended = subprocess.run(
            [tool, "verify", str(unit)], text=True, capture_output=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
