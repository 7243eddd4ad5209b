"""The pool learns what a script imports, and forks later workers with it: each fact of a zygote."""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from elasticd.channel.pool import Exited, License, PoolLearned, Started, Stop
from elasticd_agent.pool.process.process_table import children_of
from tests.fixtures.local_run import LocalRun
from tests.fixtures.pool import PoolDriver, is_alive, read_number, wait_until
from tests.integration.test_warm_pool import PROBE, plainly, warmly

SCRIPT = """
import gc, os, sys
{before}
import {imports}
import torch.distributed as dist
with open(f"pids.{{os.getpid()}}", "w") as file:
    file.write(" ".join(str(getattr(sys.modules[m], "PID", "?")) for m in "{imports}".split(", ")))
os.rename(file.name, "imported")
if not dist.is_initialized():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
while not os.path.exists("stop"):
    gc.collect(0)
    dist.barrier()
{after}
"""


class Bench:
    """A folder with a script, and packages that count as installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.installed = folder / "site-packages"
        self.installed.mkdir()
        self.record = folder / "record"
        self.env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
        path = [str(self.installed), os.environ.get("PYTHONPATH", "")]
        self.env["PYTHONPATH"] = os.pathsep.join(filter(None, path))

    def package(self, name: str, source: str = "") -> None:
        (self.installed / name).mkdir()
        text = f"import os\nPID = os.getpid()\n{source}\n"
        (self.installed / name / "__init__.py").write_text(text)

    def script(self, imports: str, *, before: str = "", after: str = "") -> None:
        text = SCRIPT.format(imports=imports, before=before, after=after)
        (self.folder / "train.py").write_text(text)

    @contextmanager
    def pool(self, *, parks: bool = True, is_started: bool = False) -> Iterator[PoolDriver]:
        driver = PoolDriver(
            env=self.env,
            cwd=self.folder,
            learns=("train.py", self.record),
            parks=parks,
            is_started=is_started,
        )
        with driver.until_closed():
            yield driver

    def start(self, driver: PoolDriver, **more: str) -> tuple[int, list[str]]:
        """Start a worker; returns its number, and which process imported each package."""
        (self.folder / "imported").unlink(missing_ok=True)
        env: Mapping[str, str] = {**self.env, **more}
        worker = driver.start("train.py", folder=self.folder, env=env)
        pid = driver.wait_for(Started, worker).pid
        wait_until((self.folder / "imported").exists, because=self.errors(worker))
        return pid, (self.folder / "imported").read_text().split()

    def errors(self, worker: str) -> str:
        path = self.folder / f"{worker}.err"
        return path.read_text() if path.exists() else f"{worker} did not start"

    def learn(self, driver: PoolDriver, **more: str) -> PoolLearned:
        """Have a worker train until the pool has learned from it, and end it."""
        pid, importers = self.start(driver, **more)
        assert set(importers) == {str(pid)}
        learned = driver.wait_for(PoolLearned)
        os.kill(pid, signal.SIGKILL)
        assert driver.wait_for(Exited).code == -signal.SIGKILL
        return learned


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_second_worker_finds_what_the_first_imported(bench: Bench) -> None:
    """The zygote ran the package once; the worker is the pool's child as ever."""
    bench.package("heavy", "sum(range(10**6))")
    bench.script("heavy")
    with bench.pool(is_started=True) as driver:
        learned = bench.learn(driver)
        assert learned.pss_bytes > 0 and learned.modules >= 1 and not learned.left_out
        pid, importers = bench.start(driver)
        assert importers == [str(learned.pid)] and pid != learned.pid
        mine = os.getpriority(os.PRIO_PROCESS, driver.process.pid)
        assert os.getpriority(os.PRIO_PROCESS, pid) == mine
        status = Path(f"/proc/{pid}/status").read_text()
        assert f"PPid:\t{driver.process.pid}\n" in status
        (bench.folder / "stop").touch()
        assert driver.wait_for(Exited).code == 0
    wait_until(lambda: not is_alive(learned.pid), because="the zygote outlives its pool")
    assert not is_alive(pid)


def test_packages_that_may_not_be_shared_are_left_out_and_the_others_serve(bench: Bench) -> None:
    """A thread, a rank, a variable of the script, the end of the process: each is told once."""
    bench.package("fine", "os.environ['FROM_FINE'] = 'yes'")
    bench.package("threads", "import threading as t; t.Thread(target=t.Event().wait).start()")
    bench.package("ranked", "rank = os.environ['RANK']")
    bench.package("housed", "home = os.environ.get('HOUSE')")
    bench.package("ends", "if not os.path.exists('imports-end'): os._exit(3)")
    bench.script(
        "fine, threads, ranked, housed, ends",
        before="os.environ['HOUSE'] = 'x'; open('imports-end', 'w').close()",
        after="assert os.environ['FROM_FINE'] == 'yes'; os._exit(0)",
    )
    with bench.pool() as driver:
        learned = bench.learn(driver, RANK="1")
        assert learned.left_out == {
            "threads": "it starts a thread",
            "ranked": "it reads RANK as it is imported",
            "housed": "it reads HOUSE as it is imported",
            "ends": "the process that imports it ends",
        }
        pid, importers = bench.start(driver, RANK="1")
        assert importers == [str(learned.pid), *[str(pid)] * 4]
        (bench.folder / "stop").touch()
        assert driver.wait_for(Exited).code == 0


def test_file_with_the_name_of_what_python_itself_has_loaded_is_in_nobodys_way(
    bench: Bench,
) -> None:
    """A script's `site.py` is never imported under python either: the zygote serves."""
    bench.package("heavy")
    bench.script("heavy")
    (bench.folder / "site.py").write_text("raise RuntimeError('not this one')\n")
    with bench.pool() as driver:
        learned = bench.learn(driver)
        assert bench.start(driver)[1] == [str(learned.pid)]


def test_next_run_begins_with_what_the_last_one_learned(bench: Bench) -> None:
    """Before any worker has said anything, unless the script was edited meanwhile."""
    bench.package("heavy")
    bench.script("heavy")
    with bench.pool() as driver:
        bench.learn(driver)
    with bench.pool() as driver:
        learned = driver.wait_for(PoolLearned)
        assert bench.start(driver)[1] == [str(learned.pid)]
    bench.script("heavy", before="pass  # edited")
    with bench.pool() as driver:
        bench.learn(driver)


def test_worker_for_which_the_imports_do_not_hold_makes_its_own(bench: Bench) -> None:
    """Another value of a variable that was read, or a module of the script's own by that name."""
    bench.package("heavy", "home = os.environ.get('TASTE')")
    bench.script("heavy")
    with bench.pool() as driver:
        learned = bench.learn(driver)
        pid, importers = bench.start(driver, TASTE="salt")
        assert importers == [str(pid)]
        pid, importers = bench.start(driver)
        assert importers == [str(learned.pid)]
        (bench.folder / "heavy.py").write_text("PID = 'my own'\n")
        pid, importers = bench.start(driver)
        assert importers == ["my", "own"]
        assert f"PPid:\t{driver.process.pid}\n" in Path(f"/proc/{pid}/status").read_text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_pool_forks_by_itself_where_the_zygote_does_not_answer(
    bench: Bench, number: signal.Signals
) -> None:
    """One worker comes of each order, whatever the zygote would have done later."""
    bench.package("heavy")
    bench.script("heavy")
    with bench.pool(parks=False) as driver:
        learned = bench.learn(driver)
        wait_until(lambda: children_of(learned.pid), because="nobody stands by")
        standing_by = children_of(learned.pid)
        for each in (*standing_by, learned.pid):
            os.kill(each, number)
        pid, importers = bench.start(driver)
        assert importers == [str(pid)]
        gone = [learned.pid, *standing_by]
        wait_until(lambda: not any(map(is_alive, gone)), because="a zygote that is given up lives")
        # One that it forked meanwhile, to stand by in the place of another, goes as well.
        wait_until(
            lambda: [p for p in children_of(driver.process.pid) if is_alive(p)] == [pid],
            because=f"there are more than {pid}: {children_of(driver.process.pid)}",
        )


def test_process_that_was_stopped_as_it_was_forked_ends_with_its_zygote(bench: Bench) -> None:
    """It has not asked to end with its parent yet, and would stand there until the pool ends."""
    bench.package(
        "heavy",
        "def freeze():\n"
        "    if os.getppid() != PID:\n"
        "        return\n"
        f"    if os.path.exists('{bench.folder}/freeze'):\n"
        "        os.kill(os.getpid(), 19)\n"
        f"    open(f'{bench.folder}/passed-{{os.getpid()}}', 'w').close()\n"
        "os.register_at_fork(after_in_child=freeze)",
    )
    bench.script("heavy")
    with bench.pool(parks=False) as driver:
        learned = bench.learn(driver)
        # A child is one before it has looked whether it is to stand still.
        wait_until(
            lambda: any(
                (bench.folder / f"passed-{each}").exists() for each in children_of(learned.pid)
            ),
            because="nobody stands by",
        )
        first = children_of(learned.pid)
        (bench.folder / "freeze").touch()
        assert bench.start(driver)[1] == [str(learned.pid)]
        wait_until(lambda: set(children_of(learned.pid)) - {*first}, because="none is forked")
        frozen = [learned.pid, *children_of(learned.pid)]
        pid, importers = bench.start(driver)
        assert importers == [str(pid)]
        wait_until(lambda: not any(map(is_alive, frozen)), because="a frozen process is left")


@pytest.mark.parametrize("end", ["stop", "license", "connection", "kill of the pool"])
def test_worker_of_a_zygote_is_guarded_like_any(bench: Bench, end: str) -> None:
    """With all that it has started, and without the zygote where the pool goes."""
    bench.package("heavy")
    daemon = (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        "    open('daemon', 'w').write(f'{os.getpid()}\\n')\n"
        "    import time; time.sleep(1000)\n"
        "os.wait()\n"
    )
    bench.script("heavy")
    with bench.pool() as driver:
        learned = bench.learn(driver)
        bench.script("heavy", before=daemon)
        pid, importers = bench.start(driver)
        assert importers == [str(learned.pid)]
        left = [pid, read_number(bench.folder / "daemon")]
        if end == "stop":
            driver.send(Stop(worker="w2", grace_s=0))
            assert driver.wait_for(Exited).code == -signal.SIGKILL
        elif end == "license":
            driver.send(License(until_s=time.clock_gettime(time.CLOCK_BOOTTIME)))
            assert driver.wait_for(Exited).code == -signal.SIGKILL
        elif end == "connection":
            left += [learned.pid, *children_of(learned.pid)]
            assert driver.close() == 0
        else:
            # Nobody is left who could find the daemon; the agent does, as the subreaper above.
            os.kill(left.pop(), signal.SIGKILL)
            left += [learned.pid, *children_of(learned.pid)]
            driver.process.kill()
        wait_until(lambda: not any(map(is_alive, left)), because=f"alive: {left}")


def test_script_with_a_zygote_sees_what_it_would_see_under_python(bench: Bench) -> None:
    """Arguments, streams, signals, folders, umask, threads, descriptors, seeds: all equal."""
    bench.package(
        "heavy", "import logging; logging.getLogger('h').addHandler(logging.StreamHandler())"
    )
    bench.script("heavy")
    with bench.pool() as driver:
        learned = bench.learn(driver)
        (bench.folder / "train.py").write_text(f"import heavy\n{PROBE}")
        _, plain, err = plainly("train.py", "--lr", "1", folder=bench.folder, env=bench.env)
        assert plain, err
        _, warm, err = warmly(driver, "train.py", "--lr", "1", folder=bench.folder, env=bench.env)
        assert warm, err
        assert json.loads(warm) == json.loads(plain)
        (bench.folder / "train.py").write_text(
            "import sys, heavy, logging, random, numpy, torch\n"
            "logging.getLogger('h').warning('said')\n"
            "assert logging.getLogger('h').handlers[0].stream is sys.stderr\n"
            "print(heavy.PID, random.random(), numpy.random.rand(), torch.rand(1).item())\n"
        )
        outs = [warmly(driver, "train.py", folder=bench.folder, env=bench.env) for _ in range(2)]
        assert [err for _, _, err in outs] == ["said\n"] * 2
        (pid, *draws), (again, *others) = (out.split() for _, out, _ in outs)
        assert pid == again == str(learned.pid)
        assert not set(draws) & set(others)


LIVES = """
import os, signal
import heavy
import torch.distributed as dist
from pathlib import Path
if heavy.PID == os.getpid():
    dist.init_process_group("gloo")
    # The record is written when the zygote is there; the pool hears of that a moment later.
    while not list(Path("elasticd-runs/.imports").glob("*.json")):
        dist.barrier()
        kept = [[] for _ in range(1000)]  # What makes Python collect garbage, as steps do.
    os.kill(os.getpid(), signal.SIGKILL)
print("imported by another process")
"""


def test_elasticd_run_starts_a_worker_again_with_what_the_first_has_loaded(bench: Bench) -> None:
    """Nobody named a module, and the script knows nothing of elasticd."""
    bench.package("heavy")
    (bench.folder / "train.py").write_text(LIVES)
    run = LocalRun(bench.folder)
    ended = run.run("--max-node-losses", "-1", "--preload", "auto", "train.py", env=bench.env)
    assert ended.code == 0, ended.err
    assert "imported by another process" in ended.out
