"""The user of `--worker-user`: who may be one, and what an agent says that cannot take it."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.channel.fork_server import SERVER_VARIABLE
from elasticd.errors import CallError
from elasticd_agent.pod.worker_user import find_worker_user
from tests.fixtures.other_user import open_folder

NOBODY = pwd.getpwnam("nobody")
DROP_IN = "-all,+setuid,+setgid,+chown"
"""What deploy/systemd/worker-user.conf says, in the words of setpriv."""
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may take another user")

CODE = """
import os, sys
from pathlib import Path
from elasticd.errors import CallError
from elasticd_agent.pod import worker_user
user = worker_user.find_worker_user("nobody")
folder = user.give_folder(Path(sys.argv[2]))
{before}
try:
    user.begin({{"--log-dir": folder}})
except CallError as exc:
    print(exc)
else:
    print(os.getresuid(), os.getresgid(), sorted(os.getgroups()) == sorted(set(user.groups)))
"""
READABLE = """
worker_user.sys.executable = "/etc/passwd"
worker_user.elasticd.__file__ = worker_user.elasticd_agent.__file__ = "/etc/passwd"
"""
"""An installation that everybody can read, whatever that of the tests is."""


def begin(before: str, folder: Path, *prefix: str) -> str:
    """Begin as nobody in a process of its own, after these lines; return what it says."""
    code = CODE.format(before=before)
    done = subprocess.run(
        [*prefix, sys.executable, "-c", code, "-", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_user_is_found_by_name_and_by_number() -> None:
    """With all groups that this machine gives it."""
    user = find_worker_user("nobody")
    assert user == find_worker_user(str(NOBODY.pw_uid))
    assert (user.uid, user.gid, user.home) == (NOBODY.pw_uid, NOBODY.pw_gid, NOBODY.pw_dir)
    assert set(user.groups) == set(os.getgrouplist("nobody", NOBODY.pw_gid))


@pytest.mark.parametrize("text", ["no-such-user", "987654", "-1", "9" * 30, "nobody\0", "²"])
def test_unknown_user_is_refused_in_a_sentence(text: str) -> None:
    """By name and by number, whatever was typed."""
    with pytest.raises(CallError, match="is no user of this machine: give one that"):
        find_worker_user(text)


@pytest.mark.parametrize("text", ["root", "0"])
def test_root_is_refused(text: str) -> None:
    """It is what the flag is there against."""
    with pytest.raises(CallError, match="is root, whose rights no job is to have"):
        find_worker_user(text)


def test_the_agents_own_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would be gained, and the operator believes that something is."""
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY.pw_uid)
    with pytest.raises(CallError, match="is the user of the agent itself"):
        find_worker_user("nobody")


def test_environment_is_that_of_a_login() -> None:
    """All else is the agent's; its fork server is that of another user."""
    environ = find_worker_user("nobody").environ_of(
        {"HOME": "/root", "USER": "root", "PATH": "/bin", SERVER_VARIABLE: "/socket"}
    )
    assert environ == {
        "HOME": NOBODY.pw_dir,
        "USER": "nobody",
        "LOGNAME": "nobody",
        "PATH": "/bin",
    }


@root_only
@pytest.mark.parametrize("prefix", [(), ("setpriv", "--bounding-set", DROP_IN)], ids=["all", "few"])
def test_agent_keeps_its_own_user_behind_the_other(prefix: tuple[str, ...]) -> None:
    """Effective is the worker's; a folder that was missing is its own, for nobody else.

    Of root's capabilities it needs those that the unit of systemd leaves it.
    """
    with open_folder() as folder:
        told = begin(READABLE, folder / "runs", *prefix)
        own = (folder / "runs").stat()
        assert (own.st_uid, own.st_gid, own.st_mode & 0o777) == (*NOBODY[2:4], 0o700)
    uid, gid = NOBODY.pw_uid, NOBODY.pw_gid
    assert told == f"(0, {uid}, 0) (0, {gid}, 0) True"


@root_only
def test_folder_that_the_user_cannot_write_is_named() -> None:
    """One that was there before stays as it is: somebody else may have his reasons."""
    with open_folder() as folder:
        (folder / "runs").mkdir(mode=0o755)
        told = begin(READABLE, folder / "runs")
        assert told.startswith(f"The user nobody of --worker-user cannot write to {folder}/runs: ")
        assert "chown -R nobody" in told and "--log-dir" in told and "\n" not in told
        assert (folder / "runs").stat().st_uid == 0


@root_only
def test_installation_that_the_user_cannot_read_is_named(tmp_path: Path) -> None:
    """Else each worker would end with a message of its own about that."""
    program = tmp_path / "python"
    program.touch(mode=0o600)
    with open_folder() as folder:
        told = begin(f"worker_user.sys.executable = {str(program)!r}", folder / "runs")
    assert told.startswith(f"The user nobody of --worker-user cannot read {program}, with which")
    assert "\n" not in told


@root_only
def test_agent_without_the_right_says_what_it_needs() -> None:
    """Nothing of it is half done: it was refused before anything else."""
    lose = "os.setresuid(1, 1, 1)"
    with open_folder() as folder:
        told = begin(f"{READABLE}\n{lose}", folder / "runs")
    assert told.startswith("--worker-user nobody needs an agent that may change its user (")
    assert "start it as root, or give it CAP_SETUID and CAP_SETGID" in told and "\n" not in told
