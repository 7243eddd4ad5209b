"""What opens etcd is not for the job's own code."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

from elasticd.cli import etcd_flags, record_source
from elasticd.cli.autoscale import run as autoscaler
from elasticd.cli.daemons import agent, operator
from elasticd.cli.doctor import command as doctor
from elasticd.cli.jobs.status import status
from elasticd.cli.main import elasticd, main
from elasticd.cli.run import foreground
from elasticd.errors import CallError
from elasticd.store.api import Store
from elasticd.telemetry import log

ASKS = """
import ctypes, subprocess, sys
PR_GET_DUMPABLE = 3
print(ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), flush=True)
if sys.argv[1:]:
    from elasticd.cli.secrecy import hide_from_user
    hide_from_user()
    print(ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), flush=True)
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""


def test_an_agent_with_a_password_cannot_be_read_by_its_user() -> None:
    """The kernel then gives /proc/PID/environ and the memory to root alone; children are free."""
    done = subprocess.run(
        [sys.executable, "-c", ASKS, ASKS], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "0", "1"]


ETCD = ["--etcd", "http://127.0.0.1:1"]
HOLDERS = [
    (agent, "check_temporary", ["agent", *ETCD]),
    (operator, "ExitStack", ["operator", *ETCD]),
    (autoscaler, "ExitStack", ["autoscale", "run", *ETCD]),
    (foreground, "JobFolder", ["run", "--join", *ETCD, "--job", "j", "script.py"]),
    (foreground, "open_store", ["run", *ETCD, "--job", "j", "script.py"]),
    (record_source, "open_store", ["status", *ETCD, "j"]),
    (record_source, "open_store", ["why", *ETCD, "j"]),
    (record_source, "open_store", ["logs", *ETCD, "j", "--follow"]),
    (record_source, "open_store", ["dashboard", *ETCD, "--port", "0"]),
    (doctor, "_findings", ["doctor", *ETCD]),
]

WITH_A_PASSWORD = [["agent"], ["operator"], ["autoscale", "run"], ["run"], ["status"], ["doctor"]]


@pytest.mark.parametrize("has_password", [True, False])
@pytest.mark.parametrize(
    ("module", "next_call", "call"), HOLDERS, ids=[" ".join(call) for _, _, call in HOLDERS]
)
def test_who_holds_the_password_hides_before_anything_else(
    module: ModuleType,
    next_call: str,
    call: list[str],
    has_password: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Without one there is nothing to hide, and debuggers may look.

    Commands that only look hide too: one that follows a run lives as long as its workers do.
    """

    def hidden() -> None:
        raise CallError("it hides.")

    def not_hidden(*given: object) -> None:
        raise CallError("it goes on.")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").touch()
    monkeypatch.setattr(signal, "signal", lambda *given: None)
    monkeypatch.setattr(log, "configure", lambda *args, **options: None)
    monkeypatch.setattr(etcd_flags, "hide_from_user", hidden)
    monkeypatch.setattr(module, next_call, not_hidden)
    if has_password:
        monkeypatch.setenv("ELASTICD_ETCD_USER", "u")
        monkeypatch.setenv("ELASTICD_ETCD_PASSWORD", "canary")
    assert main(call) == 2
    told = capsys.readouterr().err
    assert ("it hides." if has_password else "it goes on.") in told and "canary" not in told


def test_password_in_a_file_is_hidden_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whether a flag names the file, or a variable."""
    hidden: list[str] = []
    (tmp_path / "password").write_text("canary")
    monkeypatch.setattr(etcd_flags, "hide_from_user", lambda: hidden.append("it hides"))
    monkeypatch.setattr(record_source, "open_store", lambda *given: ended())
    file = ["--etcd-password-file", str(tmp_path / "password")]
    main(["status", *ETCD, "--etcd-user", "u", *file, "j"])
    assert len(hidden) == 1
    monkeypatch.setenv("ELASTICD_ETCD_PASSWORD_FILE", file[1])
    main(["status", *ETCD, "--etcd-user", "u", "j"])
    assert len(hidden) == 2


def test_every_command_that_takes_the_password_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that comes later, and builds the flag otherwise than the rest."""
    hidden: list[str] = []
    monkeypatch.setattr(etcd_flags, "hide_from_user", lambda: hidden.append("it hides"))
    monkeypatch.setenv("ELASTICD_ETCD_PASSWORD", "canary")
    found = list(password_options(click.Context(elasticd, info_name="elasticd")))
    for ctx, option in found:
        before = len(hidden)
        assert option.callback is not None, ctx.command_path
        option.callback(ctx, option, None)
        assert len(hidden) == before + 1, ctx.command_path
    names = {ctx.command_path for ctx, _ in found}
    assert names >= {f"elasticd {' '.join(words)}" for words in WITH_A_PASSWORD}


def test_only_a_command_that_is_called_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read flags, or the words of a command in a manifest, changes nothing in a process."""
    monkeypatch.setattr(etcd_flags, "hide_from_user", ended)
    monkeypatch.setenv("ELASTICD_ETCD_PASSWORD", "canary")
    environ = {"ELASTICD_ETCD_USER": "u", "ELASTICD_ETCD_PASSWORD": "canary"}
    settings = etcd_flags.settings_from({"etcd": "http://127.0.0.1:1"}, environ)
    assert settings is not None and settings.password == "canary"
    status.make_context("status", [*ETCD, "--etcd-password-file", "/nowhere", "j"])


def password_options(group: click.Context) -> Iterator[tuple[click.Context, click.Parameter]]:
    """Give each option of a command below that takes etcd's password, as if it were called."""
    assert isinstance(group.command, click.Group)
    for name in group.command.list_commands(group):
        command = group.command.get_command(group, name)
        assert command is not None, name
        ctx = click.Context(command, parent=group, info_name=name)
        for option in command.params:
            if any("etcd" in each and "password" in each for each in option.opts):
                yield ctx, option
        if isinstance(command, click.Group):
            yield from password_options(ctx)


def ended() -> Store:
    raise CallError("it goes on.")
