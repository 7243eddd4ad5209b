"""What deploy/ ships for the autoscaler calls a command that there is, with flags that it has."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from elasticd.cli.autoscale.run import run
from elasticd.cli.main import elasticd

DEPLOY = Path(__file__).parents[3] / "deploy"
UNIT = (DEPLOY / "systemd" / "elasticd-autoscaler.service").read_text()
ENVIRONMENT = (DEPLOY / "systemd" / "autoscaler.env").read_text()


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


def test_command_is_one_that_there_is() -> None:
    """Files that nobody calls rot."""
    checked(words_of_unit())


def test_variables_are_read() -> None:
    """Each of them, by the command that the files start."""
    named = [line.partition("=")[0] for line in ENVIRONMENT.splitlines() if line[:1] != "#"]
    assert len(named) > 5
    for name in named:
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
    assert int(seconds) >= 15


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
