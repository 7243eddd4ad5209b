"""The unit of systemd for an agent: a command that there is, without rights that it never needs."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from elasticd_agent.pod.keeper_wait import KEEPER_WAIT_S
from tests.fixtures.manifests import DEPLOY, SHUTDOWN_S, parsed, variables

FOLDER = DEPLOY / "systemd"
UNIT = (FOLDER / "elasticd-agent.service").read_text()
EXPOSURE_LIMIT = 25
"""Of systemd's own scale, times ten: it says "OK" up to 49, and 9 is a service without network."""
FOR_ANOTHER_USER = 4
"""What systemd counts for CAP_SETUID, CAP_CHOWN and a start as root."""


def value_of(name: str) -> str:
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return str(found)


def test_command_is_one_that_there_is() -> None:
    """With variables that it reads."""
    words = shlex.split(value_of("ExecStart"))
    assert words[0] == "/opt/elasticd/bin/elasticd"
    command = parsed(words[1:])
    assert command.name == "agent"
    for line in (FOLDER / "agent.env").read_text().splitlines():
        assert line.startswith("#") or line.partition("=")[0] in variables(command), line


def test_it_has_time_to_leave_and_its_keepers_too() -> None:
    """systemd kills what is left of a unit once its first process has ended."""
    assert int(value_of("TimeoutStopSec")) >= SHUTDOWN_S + 90
    assert value_of("KillMode") == "mixed", "else workers and keepers get a SIGTERM beside"
    assert f"--keeper-wait {KEEPER_WAIT_S:g}" in value_of("ExecStart")


def test_worker_that_is_out_of_memory_does_not_end_the_node() -> None:
    """By default systemd stops the whole unit."""
    assert value_of("OOMPolicy") == "continue"


def test_what_it_writes_to_can_be_written() -> None:
    """All else is read-only."""
    assert value_of("ProtectSystem") == "strict"
    folder = shlex.split(value_of("ExecStart"))
    assert folder[folder.index("--log-dir") + 1].startswith(
        f"/var/lib/{value_of('StateDirectory')}/"
    )
    assert value_of("ReadWritePaths") == "/dev/shm" and value_of("PrivateTmp") == "yes"


def test_drop_in_gives_the_agent_what_a_worker_user_needs_and_no_more() -> None:
    """Its variable is one that the agent reads; the run folder is reached by that user."""
    text = (FOLDER / "worker-user.conf").read_text()
    given = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    assert given.pop("User") == "root"
    assert given.pop("Environment").partition("=")[0] in variables(parsed(["agent"]))
    assert given.pop("CapabilityBoundingSet").split() == ["CAP_SETUID", "CAP_SETGID", "CAP_CHOWN"]
    assert given.pop("StateDirectoryMode") == "0711"
    assert given == {}


@pytest.mark.parametrize(
    ("name", "drop_in", "limit"),
    [
        ("elasticd-agent.service", "", EXPOSURE_LIMIT),
        ("elasticd-agent.service", "worker-user.conf", EXPOSURE_LIMIT + FOR_ANOTHER_USER),
        ("elasticd-autoscaler.service", "", EXPOSURE_LIMIT),
    ],
)
def test_systemd_finds_the_unit_well_closed(
    name: str, drop_in: str, limit: int, tmp_path: Path
) -> None:
    """By its own tool where that is; by the lines that it looks for elsewhere."""
    text = (FOLDER / name).read_text()
    if drop_in:
        lines = (FOLDER / drop_in).read_text().partition("[Service]\n")[2]
        text = text.replace("\n[Install]\n", f"\n{lines}\n[Install]\n")
    for line in (
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "SystemCallFilter=@system-service",
    ):
        assert f"\n{line}\n" in text
    tool = shutil.which("systemd-analyze")
    if tool is None:
        return
    for words in (
        ["security", "--offline=yes", f"--threshold={limit}"],
        ["verify"],
    ):
        unit = tmp_path / name
        shown = re.sub(r"/opt/elasticd/bin/elasticd .*", "/bin/true", text)
        unit.write_text(
            shown.replace("EnvironmentFile=", "EnvironmentFile=-").replace(
                "User=elasticd", "User=1"
            )
        )
        ended = subprocess.run(
            [tool, *words, str(unit)], text=True, capture_output=True, check=False
        )
        assert ended.returncode == 0, (ended.stdout[-200:], ended.stderr)
