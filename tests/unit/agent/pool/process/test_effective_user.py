"""A process that acts as another user, and what it starts."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd_agent.pool.process.effective_user import child_gid, child_uid
from tests.fixtures.other_user import NOBODY, open_folder

ROOT = Path(__file__).parents[5]
STARTS = {f"subprocess.{name}" for name in ("Popen", "run", "call", "check_call", "check_output")}
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may take another user")

ACTS = f"""
import os, signal, subprocess, sys, threading
from elasticd.store.real_user import reading_as_real_user
from elasticd_agent.pool.process.effective_user import become_effective, child_gid, child_uid
{{before}}
become_effective({NOBODY}, {NOBODY}, [{NOBODY}])

def start(command):
    return subprocess.run(
        ["/bin/sh", "-c", command],
        user=child_uid(), group=child_gid(), capture_output=True, text=True, cwd="/",
    ).stdout

def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError as exc:
        return type(exc).__name__

"""
AMBIENT = """
import ctypes
libc = ctypes.CDLL(None)
ids = (6, 7)  # CAP_SETGID, CAP_SETUID
bits = sum(1 << each for each in ids)
libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
os.setgroups([])
os.setresgid(1, 1, 1)
os.setresuid(1, 1, 1)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
assert libc.capset(header, (ctypes.c_uint32 * 6)(bits, bits, bits, 0, 0, 0)) == 0
for each in ids:
    assert libc.prctl(47, 2, each, 0, 0) == 0  # PR_CAP_AMBIENT_RAISE
"""


def said(code: str, *args: str, before: str = "") -> list[str]:
    """Return the lines that code says which acts as nobody."""
    done = subprocess.run(
        [sys.executable, "-c", ACTS.format(before=before) + code, *args],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_process_that_acts_as_itself_starts_what_it_is() -> None:
    """No child is asked to change anything."""
    assert child_uid() is None and child_gid() is None


@root_only
@pytest.mark.parametrize(("before", "own"), [("", 0), (AMBIENT, 1)], ids=["root", "capability"])
def test_child_has_no_way_back(before: str, own: int) -> None:
    """Neither root's as agent nor that of a user whom systemd gave the capability."""
    told = said(
        'print(os.getresuid(), os.getresgid())\n'
        'print(start("grep -E \'^(Uid|Gid|Groups|Cap(Inh|Prm|Eff|Amb))\' /proc/self/status"))\n'
        'print(start("setpriv --reuid 0 id || echo refused"))',
        before=before,
    )  # fmt: skip
    assert told[0] == f"({own}, {NOBODY}, {own}) ({own}, {NOBODY}, {own})"
    facts = {line.split(":")[0]: line.split()[1:] for line in told[1:8]}
    assert facts["Uid"] == facts["Gid"] == [str(NOBODY)] * 4
    assert facts["Groups"] == [str(NOBODY)]
    for name in ("CapPrm", "CapEff", "CapAmb"):
        assert int(facts[name][0], 16) == 0, name
    assert "refused" in told


@root_only
def test_files_are_judged_by_the_other_users_rights_also_through_a_link() -> None:
    """But those that open etcd, which are read as the one who started it, by that thread alone."""
    with open_folder() as folder:
        secret, link = folder / "secret", folder / "link"
        secret.write_text("s3cr3t")
        secret.chmod(0o600)
        link.symlink_to(secret)
        told = said(
            "path, link = sys.argv[1:]\n"
            "print(read(path), read(link))\n"
            "with reading_as_real_user():\n"
            "    print(read(path))\n"
            "    other = threading.Thread(target=lambda: print(read(path)))\n"
            "    begun = threading.Event()\n"
            "print(read(path))\n"
            "seen = []\n"
            "reader = threading.Thread(target=lambda: (begun.wait(), seen.append(read(path))))\n"
            "reader.start()\n"
            "with reading_as_real_user():\n"
            "    begun.set()\n"
            "    reader.join()\n"
            "print(seen[0])",
            str(secret),
            str(link),
        )
    refused = "PermissionError"
    assert told == [f"{refused} {refused}", "s3cr3t", refused, refused]


@root_only
def test_child_can_neither_end_nor_read_its_agent_and_is_ended_by_it() -> None:
    """The agent's real and saved user are not the child's."""
    told = said(
        "own = os.getpid()\n"
        'print(start(f"kill -9 {own} || echo refused").split())\n'
        'print(start(f"cat /proc/{own}/environ > /dev/null || echo refused").split())\n'
        'child = subprocess.Popen(["sleep", "60"], user=child_uid(), group=child_gid(), cwd="/")\n'
        "child.kill()\n"
        "print(child.wait())"
    )
    assert told == ["['refused']", "['refused']", "-9"]


@root_only
def test_soft_limit_of_open_files_is_told_and_not_given() -> None:
    """The kernel refuses to set that of another user's process."""
    told = said(
        "raise_limit()\nprint(*limit_arguments())\n",
        before="import resource\n"
        "from elasticd_agent.loop.open_file_limit import raise_limit\n"
        "from elasticd_agent.workers.fork_server_client import limit_arguments\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))",
    )
    assert told == ["--open-files 256"]


def test_whatever_an_agent_starts_takes_that_user() -> None:
    """One that is left out would be root's again: its real user is."""
    found = {}
    for path in sorted((ROOT / "agent").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in STARTS:
                given = {each.arg: ast.unparse(each.value) for each in node.keywords}
                found[f"{path.name}:{node.lineno}"] = (given.get("user"), given.get("group"))
    assert len(found) >= 5
    assert set(found.values()) == {("child_uid()", "child_gid()")}, found
