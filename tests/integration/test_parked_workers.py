"""Workers are forked before they are needed: they serve, are guarded, and stand in nobody's way."""

import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from elasticd.channel.pool import Exited, License, PoolLearned, PoolParked
from elasticd_agent.pool.process.process_table import children_of, look_up
from tests.fixtures.pool import PoolDriver, is_alive, wait_until
from tests.integration.test_learned_pool import Bench, bench
from tests.integration.test_warm_pool import PROBE, plainly, warmly

__all__ = ["bench"]

NICEST = 19
TRIES = 10
"""So many workers may run until two of them were parked ones."""
DRAWS = 3
"""So many random values each of them prints."""


@contextmanager
def a_pool(bench: Bench, source: str = "pool", *, is_started: bool = False) -> Iterator[PoolDriver]:
    """A pool whose workers come from itself, or from a zygote that is there from the start."""
    bench.package("heavy")
    bench.script("heavy")
    if source == "pool":
        driver = PoolDriver(env=bench.env, cwd=bench.folder, is_patient=True, is_started=is_started)
        with driver.until_closed():
            yield driver
        return
    with bench.pool() as driver:
        bench.learn(driver)
    with bench.pool() as driver:
        driver.wait_for(PoolLearned)
        yield driver


def parked(driver: PoolDriver) -> list[int]:
    """Return those that are parked, once the pool says that there are enough."""
    told = driver.wait_for(PoolParked)
    assert 0 < told.private_bytes < 20 << 20
    # Those of another source were killed before that, and may not have ended yet.
    wait_until(
        lambda: len(now_parked(driver)) == told.workers, because=f"told: {told}, others are parked"
    )
    return now_parked(driver)


def now_parked(driver: PoolDriver) -> list[int]:
    pids = filter(is_alive, children_of(driver.process.pid))
    return [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text() == "parked\n"]


def kill(driver: PoolDriver, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert driver.wait_for(Exited).code == -signal.SIGKILL


def other_niceness() -> int:
    """Return one that this process, from which the pool has its own, does not have."""
    present = os.getpriority(os.PRIO_PROCESS, 0)
    return present + 1 if present < NICEST else present - 1


@pytest.mark.parametrize("source", ["pool", "zygote"])
def test_replacement_of_a_killed_worker_was_parked(bench: Bench, source: str) -> None:
    """It is the pool's child like any, has its imports from the same process, and has a successor;
    nothing is left at the end, and no zombie before it.
    """
    with a_pool(bench, source) as driver:
        first, importers = bench.start(driver)
        pids = [first]
        for _ in range(2):
            (waiting,) = parked(driver)
            found = look_up(waiting)
            assert found is not None and found.session == waiting and found.threads == 1
            kill(driver, pids[-1])
            pid, again = bench.start(driver)
            assert pid == waiting
            assert again == ([str(pid)] if source == "pool" else importers)
            assert Path(f"/proc/{pid}/comm").read_text() == "standby\n"
            pids.append(pid)
        left = [*pids[-1:], *parked(driver)]
        states = [look_up(pid) for pid in children_of(driver.process.pid)]
        assert not [each for each in states if each is None or each.state == "Z"]
    # The pool waits for its workers; what is parked runs nothing, and is killed without a wait.
    wait_until(lambda: not any(map(is_alive, left)), because=f"alive: {left}")


def test_each_worker_has_one(bench: Bench) -> None:
    """Each of two orders gets another of them, in a pool that was started and not forked."""
    with a_pool(bench, is_started=True) as driver:
        workers = [bench.start(driver)[0] for _ in range(2)]
        waiting: list[int] = []
        while len(waiting) < 2:  # One may have been parked before the second worker ran.
            driver.wait_for(PoolParked)
            waiting = now_parked(driver)
        for pid in workers:
            kill(driver, pid)
        assert {bench.start(driver)[0] for _ in range(2)} == {*waiting}


@pytest.mark.parametrize("fault", ["killed", "stopped", "limit", "niceness"])
def test_one_that_is_not_as_a_fork_would_be_serves_nobody(bench: Bench, fault: str) -> None:
    """It has ended, stands still, or has not what the pool has now; a fork takes its place."""
    with a_pool(bench) as driver:
        worker, _ = bench.start(driver)
        (waiting,) = parked(driver)
        if fault == "limit":
            resource.prlimit(driver.process.pid, resource.RLIMIT_NOFILE, (512, 512))
        elif fault == "niceness":
            os.setpriority(os.PRIO_PROCESS, driver.process.pid, other_niceness())
        else:
            os.kill(waiting, signal.SIGSTOP if fault == "stopped" else signal.SIGKILL)
        kill(driver, worker)
        pid, _ = bench.start(driver)
        assert pid != waiting
        if fault == "limit":
            assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (512, 512)
        if fault == "niceness":
            assert os.getpriority(os.PRIO_PROCESS, pid) == other_niceness()
        wait_until(lambda: not is_alive(waiting), because="it was of no use, and lives")
        assert parked(driver) != [waiting]


@pytest.mark.parametrize("end", ["license", "connection", "kill of the pool"])
@pytest.mark.parametrize("source", ["pool", "zygote"])
def test_those_that_are_parked_end_with_all_else(bench: Bench, source: str, end: str) -> None:
    """Where no worker may run, none waits either; one that stands still is no exception."""
    with a_pool(bench, source) as driver:
        worker, _ = bench.start(driver)
        (waiting,) = parked(driver)
        os.kill(waiting, signal.SIGSTOP)
        if end == "license":
            driver.send(License(until_s=time.clock_gettime(time.CLOCK_BOOTTIME)))
            assert driver.wait_for(Exited).code == -signal.SIGKILL
        elif end == "connection":
            assert driver.close() == 0
        else:
            driver.process.kill()
        left = [worker, waiting]
        wait_until(lambda: not any(map(is_alive, left)), because=f"alive: {left}")


def test_zygote_with_more_imports_has_its_own(bench: Bench) -> None:
    """Those of the pool, which have not loaded them, are ended."""
    bench.package("heavy")
    bench.script("heavy")
    with bench.pool() as driver:
        worker, _ = bench.start(driver)
        old = parked(driver)
        learned = driver.wait_for(PoolLearned)
        new = parked(driver)
        wait_until(lambda: not any(map(is_alive, old)), because="they have not what was learned")
        kill(driver, worker)
        pid, importers = bench.start(driver)
        assert [pid] == new
        assert importers == [str(learned.pid)]


@pytest.mark.parametrize("source", ["pool", "zygote"])
def test_script_that_was_parked_sees_what_it_would_see_under_python(
    bench: Bench, source: str
) -> None:
    """Arguments, environment, streams, signals, folders, umask, descriptors, seeds: all equal."""
    with a_pool(bench, source) as driver:
        bench.start(driver)
        (waiting,) = parked(driver)
        (bench.folder / "train.py").write_text(f"import heavy\n{PROBE}")
        _, plain, err = plainly("train.py", "--lr", "1", folder=bench.folder, env=bench.env)
        assert plain, err
        _, warm, err = warmly(driver, "train.py", "--lr", "1", folder=bench.folder, env=bench.env)
        assert warm, err
        assert json.loads(warm) == json.loads(plain)
        wait_until(lambda: not is_alive(waiting), because="it was another that ran")
        (bench.folder / "train.py").write_text(
            "import os, random, numpy, torch\n"
            "print(os.getpid(), random.random(), numpy.random.rand(), torch.rand(1).item())\n"
        )
        draws: list[str] = []
        for _ in range(TRIES):
            wait_until(partial(now_parked, driver), because="none is parked for the next worker")
            waiting_pids = now_parked(driver)
            _, out, err = warmly(driver, "train.py", folder=bench.folder, env=bench.env)
            assert out, err
            pid, *more = out.split()
            # Else the pool had not read yet that this one waits, and forked another.
            draws += more if int(pid) in waiting_pids else []
            if len(draws) == 2 * DRAWS:
                break
        assert len(draws) == 2 * DRAWS, "workers were forked although others were parked"
        assert len(set(draws)) == len(draws)


FACTS = """
import json, os, resource, time
limits = {k: resource.getrlimit(getattr(resource, k)) for k in dir(resource) if k[:7] == "RLIMIT_"}
fds = {fd: os.readlink(f"/proc/self/fd/{fd}").split(":[")[0].replace(os.environ["NAME"], "worker")
       for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
names = ("Uid", "Gid", "Groups", "Umask", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Threads",
         "Cpus_allowed", "Mems_allowed", "SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd")
facts = {
    "limits": limits, "fds": fds, "status": [status[name] for name in names], "cwd": os.getcwd(),
    "env": {k: v for k, v in os.environ.items() if k not in ("NAME", "ELASTICD_WORKER")},
    "parent": os.getppid(), "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "priority": os.getpriority(os.PRIO_PROCESS, 0), "policy": os.sched_getscheduler(0),
    "cores": sorted(os.sched_getaffinity(0)), "comm": open("/proc/self/comm").read(),
    "cgroup": open("/proc/self/cgroup").read(), "oom": open("/proc/self/oom_score_adj").read(),
    "mark": os.environ["ELASTICD_WORKER"] == os.environ["NAME"],
    "modules": len(__import__("sys").modules),
}
print(os.getpid(), json.dumps(facts, sort_keys=True), "end", sep="|", flush=True)
while not os.path.exists("stop"):
    time.sleep(0.01)
"""


def has_ended_its_line(path: Path) -> bool:
    return path.exists() and "|end" in path.read_text()


@pytest.mark.parametrize("source", ["pool", "zygote"])
def test_process_that_was_parked_has_what_one_that_is_forked_has(bench: Bench, source: str) -> None:
    """Limits, descriptors, signals, cores, cgroup, privileges, parent: as the kernel tells them."""
    with a_pool(bench, source) as driver:
        (bench.folder / "train.py").write_text(f"import heavy\n{FACTS}")
        found: list[tuple[int, object]] = []
        for name in ("one", "two"):
            waiting = parked(driver) if found else []
            env = {**bench.env, "NAME": name}
            driver.start("train.py", folder=bench.folder, env=env, name=name)
            out = bench.folder / f"{name}.out"
            wait_until(partial(has_ended_its_line, out), because=name)
            pid, text, _ = out.read_text().split("|")
            found.append((int(pid), json.loads(text)))
        assert found[1][0] in waiting and found[0][0] not in waiting
        assert found[0][1] == found[1][1]
