"""An agent with `--worker-user`: jobs of another user, from their start to their end.

Root starts it, so all of this is skipped where the tests are not root's.
"""

import json
import os
import pwd
import re
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.records.reason import Phase, Reason
from tests.fixtures.cluster import Cluster, Daemon, Job, cluster_on, until
from tests.fixtures.other_user import NOBODY, open_folder, with_open_view

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may take another user")

YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
TWO = ("--nproc-per-node", "2")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with open_folder() as folder, cluster_on(folder / "cluster") as cluster:
        cluster.fork_server_environ = {}
        cluster.agent_prefix = with_open_view(folder / "view")
        cluster.agent_flags = ("--worker-user", "nobody")
        cluster.environ_of["one"]["TMPDIR"] = "/tmp"
        saved = cluster.folder / "saved"
        saved.mkdir(mode=0o700)
        os.chown(saved, NOBODY, -1)
        cluster.daemon("one", slots=2).wait_registered()
        yield cluster


@pytest.fixture
def daemon(cluster: Cluster) -> Daemon:
    return cluster.daemons["one"]


def told_of(pid: int) -> dict[str, list[str]]:
    """Return what the kernel tells of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}


def assert_all_are_nobodys(daemon: Daemon, at_least: int) -> None:
    """Nothing that the agent has started has a user, a group or a right of root's."""
    groups = {str(each) for each in os.getgrouplist("nobody", pwd.getpwnam("nobody").pw_gid)}
    seen = 0
    for pid, command in daemon.processes.items():
        try:
            told = told_of(pid)
        except OSError:
            continue  # It ended meanwhile.
        if pid == daemon.pid:
            assert told["Uid"] == ["0", str(NOBODY), "0", str(NOBODY)]
            continue
        seen += 1
        assert told["Uid"] == [str(NOBODY)] * 4, command
        assert len(set(told["Gid"])) == 1 and set(told["Gid"]) <= groups, command
        assert set(told["Groups"]) <= groups, command
        assert int(told["CapPrm"][0], 16) == int(told["CapAmb"][0], 16) == 0, command
    assert seen >= at_least


def assert_files_are_nobodys(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        assert path.lstat().st_uid == NOBODY, path


def environment_of(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(each.partition("=")[::2] for each in text.split("\0"))


def test_in_process_job_trains_recovers_saves_and_stops(cluster: Cluster, daemon: Daemon) -> None:
    """A worker is killed, another one hangs and is examined; the state of the stop is durable."""
    url = f"file://{cluster.folder}/saved/inside"
    flags = ("--checkpoint", url, "--checkpoint-every", "5steps", "--tensorboard", f"{url}-events")
    job = cluster.submit("inside", *TWO, *flags, script="steady.py")
    generation = job.wait_steady(2)
    # The keeper, the fork server, the pool, its store host, two workers.
    assert_all_are_nobodys(daemon, at_least=6)
    with job.struck(generation, 1) as (pid,):
        os.kill(pid, signal.SIGKILL)
    job.wait_step(size=2, after=generation)
    generation = job.wait_steady(2)
    os.kill(job.wait_pid(generation, 0), signal.SIGSTOP)
    job.wait_step(size=2, after=generation)
    until(lambda: [c for c in daemon.processes.values() if "tensorboard" in c], lambda: daemon.log)
    assert_all_are_nobodys(daemon, at_least=7)
    folder = cluster.runs / "inside" / "incidents"
    stacks = "".join(path.read_text() for path in folder.glob("*.stacks.txt"))
    assert "frozen" in stacks and re.search(r"thread .* state [tT], ", stacks), stacks
    if not YAMA.exists() or YAMA.read_text().strip() == "0":
        # What only a process of the same user may read of another: the call in which it stands.
        assert re.search(r"state [tT], .* call (-1|\d)", stacks), stacks
    ended = cluster.run("stop", "inside", "--wait")
    assert ended.code == 0, ended.err
    listed = cluster.run("checkpoint", "ls", url, "--json")
    assert json.loads(listed.out), listed.err
    assert_files_are_nobodys(cluster.runs / "inside")
    for name in ("inside", "inside-events"):
        assert_files_are_nobodys(cluster.folder / "saved" / name)


def test_script_that_is_started_anew_recovers_and_ends_well(
    cluster: Cluster, daemon: Daemon
) -> None:
    """Restart mode, in a pool that is forked from the same server; workers have a login's names."""
    job = cluster.submit("anew", *TWO)
    generation = job.wait_steady(2)
    with job.struck(generation, 0) as (pid,):
        os.kill(pid, signal.SIGKILL)
    step = job.wait_step(size=2, after=generation)
    world = job.world
    assert world is not None and world.reason is Reason.WORKER_KILLED
    environment = environment_of(daemon.workers(step.generation)[0])
    assert (environment["USER"], environment["LOGNAME"]) == ("nobody", "nobody")
    assert environment["HOME"] == pwd.getpwnam("nobody").pw_dir
    assert "pool.not_forked" not in daemon.log and "fork_server.given_up" not in daemon.log
    assert_all_are_nobodys(daemon, at_least=5)
    assert job.finish().phase is Phase.SUCCEEDED


def ask(cluster: Cluster, command: str) -> str:
    """Run a shell's command as a job without a pool; return what it printed."""
    name = f"asks-{uuid.uuid4().hex[:8]}"
    flags = ("--job", name, "--detach", "--no-python", "/bin/sh", "-c", command)
    ended = cluster.run("run", *flags)
    assert ended.code == 0, ended.err
    Job(cluster, name).wait_phase(Phase.SUCCEEDED)
    return (cluster.runs / name / "gen-1" / "rank-0.out").read_text()


def test_other_program_runs_as_that_user_too(cluster: Cluster) -> None:
    """There torch is not imported, and no worker is forked."""
    groups = sorted(os.getgrouplist("nobody", pwd.getpwnam("nobody").pw_gid))
    told = ask(cluster, "id -u; id -G; echo $HOME")
    assert told.splitlines()[0] == str(NOBODY)
    assert sorted(map(int, told.splitlines()[1].split())) == groups


def test_job_gets_at_nothing_of_the_agent(cluster: Cluster, daemon: Daemon) -> None:
    """Neither its memory nor its life, nor a file of root's, nor root."""
    secret = cluster.folder / "secret"
    secret.write_text("s3cr3t")
    secret.chmod(0o600)
    tries = (
        f"cat {secret}",
        f"cat /proc/{daemon.pid}/environ",
        f"kill -9 {daemon.pid}",
        f"ls /proc/{daemon.pid}/fd",
        "setpriv --reuid 0 id",
    )
    told = ask(cluster, "; ".join(f"{each} && echo got in" for each in tries) + "; echo tried")
    assert told == "tried\n"
    assert daemon.is_running


def test_link_that_a_job_laid_is_followed_with_its_rights_alone(
    cluster: Cluster, daemon: Daemon
) -> None:
    """The agent writes beside what jobs write: a name that leads to root's is no way in."""
    kept = cluster.folder / "kept"
    kept.mkdir(mode=0o700)
    ask(cluster, f"ln -s {kept} {cluster.runs}/linked")
    ended = cluster.run("run", "--job", "linked", "--detach", "--no-python", "/bin/true")
    assert ended.code == 0, ended.err
    until(lambda: "pool.not_started" in daemon.log, lambda: daemon.log[-2000:])
    assert list(kept.iterdir()) == []
    assert cluster.run("stop", "linked").code == 0
    (cluster.runs / "linked").unlink()


def test_script_that_this_user_cannot_read_is_told_and_costs_no_restart(
    cluster: Cluster, daemon: Daemon
) -> None:
    """The node says so at once, and the job begins as soon as the right is given."""
    home = cluster.folder / "home"
    home.mkdir(mode=0o700)
    script = home / "train.py"
    script.write_text("print('trained')\n")
    ended = cluster.run("run", "--job", "closed", "--detach", str(script))
    assert ended.code == 0, ended.err
    sentence = (
        f"The user nobody of --worker-user cannot read the script {script}, since it may not enter "
        f"the folder {home}: let that user through (chmod o+x {home})"
    )
    until(lambda: sentence in cluster.run("status", "closed").out, lambda: daemon.log[-2000:])
    job = Job(cluster, "closed")
    assert job.world is None and job.status.phase is Phase.PENDING
    home.chmod(0o711)
    job.wait_phase(Phase.SUCCEEDED)
    world = job.world
    assert world is not None and (world.generation, world.restarts) == (1, 0)
