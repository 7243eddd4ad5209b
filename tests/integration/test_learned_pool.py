"""The pool learns what a script imports, and forks later workers with it: each fact of a zygote."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from elasticd.channel.pool import Exited, PoolLearned, Started
from tests.fixtures.pool import PATIENCE_S, PoolDriver, is_alive, wait_until

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
    gc.collect()
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
    def pool(self) -> Iterator[PoolDriver]:
        driver = PoolDriver(env=self.env, cwd=self.folder, learns=("train.py", self.record))
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
    with bench.pool() as driver:
        learned = bench.learn(driver)
        assert learned.pss_bytes > 0 and learned.modules >= 1 and not learned.left_out
        pid, importers = bench.start(driver)
        assert importers == [str(learned.pid)] and pid != learned.pid
        status = Path(f"/proc/{pid}/status").read_text()
        assert f"PPid:\t{driver.process.pid}\n" in status
        (bench.folder / "stop").touch()
        assert driver.wait_for(Exited).code == 0
    wait_until(lambda: not is_alive(learned.pid), because="the zygote outlives its pool")
    assert not is_alive(pid)
