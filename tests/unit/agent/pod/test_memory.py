"""A worker that the kernel killed for want of memory is told from one that somebody killed."""

from pathlib import Path

import pytest

from elasticd.telemetry.cgroup import MemoryLimit
from elasticd_agent.pod import memory
from elasticd_agent.pod.memory import BESIDE_S, OomKills, log_limit
from tests.fixtures.captured_log import captured_log

LIMIT = MemoryLimit(size_bytes=3 << 29, path=Path("/sys/fs/cgroup/memory.max"))


class Kernel:
    """Counts its kills, and has the time."""

    def __init__(self, count: int | None = 4) -> None:
        self.count, self.now_s = count, 100.0
        self.limit: MemoryLimit | None = LIMIT
        self.kills = OomKills(lambda: self.count, lambda: self.limit, lambda: self.now_s)

    def kill(self, number: int = 1) -> None:
        """For want of memory."""
        assert self.count is not None
        self.count += number


def test_killed_worker_says_why_and_what_the_limit_was() -> None:
    """`killed by SIGKILL` alone sends people to look for who did it."""
    kernel = Kernel()
    kernel.kill()
    assert kernel.kills.sentence_of(-9) == (
        "Out of memory: the kernel killed this process for want of memory; the limit of its "
        "container is 1.5 GiB (/sys/fs/cgroup/memory.max)."
    )
    kernel.kill()
    kernel.limit = None
    assert kernel.kills.sentence_of(-9).endswith("; this machine has none left.")


def test_kill_by_somebody_is_not_one_for_memory() -> None:
    """Also where there were some before this agent began, or none can be counted."""
    assert Kernel().kills.sentence_of(-9) == ""
    assert Kernel(None).kills.sentence_of(-9) == ""


def test_each_kill_is_put_down_to_one_process() -> None:
    """The rank that dies next dies of something else."""
    kernel = Kernel()
    kernel.kill()
    assert kernel.kills.sentence_of(-9)
    assert kernel.kills.sentence_of(-9) == ""


def test_those_killed_at_one_moment_all_say_so() -> None:
    """`memory.oom.group` kills all of a container; their ends come one after the other."""
    kernel = Kernel()
    kernel.kill(3)
    assert [bool(kernel.kills.sentence_of(-9)) for _ in range(4)] == [True, True, True, False]


def test_kill_that_nobody_claims_soon_is_nobodys() -> None:
    """A pod's own process was killed: an hour later a rank is killed by hand."""
    kernel = Kernel()
    kernel.kill(2)
    assert kernel.kills.sentence_of(-9)
    kernel.now_s += BESIDE_S
    assert kernel.kills.sentence_of(-9) == ""


def test_rank_that_raises_takes_the_kill_of_its_loader() -> None:
    """It has its own words for it; who is killed by us in the recovery was not out of memory."""
    kernel = Kernel()
    kernel.kill()
    with captured_log() as logs:
        assert kernel.kills.sentence_of(1) == ""
    assert kernel.kills.sentence_of(-9) == ""
    assert [(each["event"], each["processes"]) for each in logs] == [("memory.oom_killed", 1)]


@pytest.mark.parametrize("path", [Path("/sys/fs/cgroup/memory.oom.group"), None])
def test_agent_that_dies_with_its_workers_says_so_at_its_start(
    monkeypatch: pytest.MonkeyPatch, path: Path | None
) -> None:
    """When it happens nobody is left who could tell."""
    monkeypatch.setattr(memory, "killed_together", lambda: path)
    with captured_log() as logs:
        log_limit()
    told = [line for line in logs if line["event"] == "memory.killed_together"]
    assert [line["path"] for line in told] == ([str(path)] if path else [])
    assert all("singleProcessOOMKill" in line["why"] for line in told)
