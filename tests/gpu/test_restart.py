"""kill -9 of one of two ranks of a plain script on the card: how soon a new process steps again."""

import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.fixtures.call import Call
from tests.fixtures.local_run import LocalRun
from tests.gpu.card import PATIENCE_S, note

SCRIPT = Path(__file__).parent / "scripts" / "plain.py"
KILLS = 3
STEPS = 20
KILL_DELAY_S = 2.0
"""Failures are hours apart, and both launchers have come to rest by then."""

Line = tuple[str, float, int, int]


class Said:
    """The lines that the ranks write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[Line]:
        text = self.path.read_text() if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1].splitlines()
        words = (each.split() for each in whole)
        return [(what, float(at), int(rank), int(pid)) for what, at, rank, pid in words]

    def steps(self, without: set[int]) -> dict[int, list[Line]]:
        """Return those of each process that is not among `without`."""
        found: dict[int, list[Line]] = {}
        for line in self.lines():
            if line[0] == "step" and line[3] not in without:
                found.setdefault(line[3], []).append(line)
        return found

    def is_steady(self, without: set[int]) -> bool:
        """Return whether two processes that are not among `without` are well under way."""
        return sum(len(each) >= STEPS for each in self.steps(without).values()) == 2


def until(is_true: Callable[[], object]) -> None:
    limit_s = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < limit_s
        time.sleep(0.01)


def recoveries(said: Said) -> list[float]:
    """Kill one rank after the other, and return how long each time no new process has stepped."""
    found: list[float] = []
    old: set[int] = set()
    for number in range(KILLS):
        until(partial(said.is_steady, old))
        time.sleep(KILL_DELAY_S)
        world = said.steps(old)
        old |= set(world)
        victim = next(pid for pid, lines in world.items() if lines[0][2] == number % 2)
        killed_s = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        until(partial(said.steps, old))
        found.append(min(lines[0][1] for lines in said.steps(old).values()) - killed_s)
    return found


def elasticd(folder: Path, env: dict[str, str]) -> Call:
    args = ("--local-agents", "2", "--nnodes", "2", "--max-node-losses", "-1", str(SCRIPT))
    return LocalRun(folder).call(*args, env=env)


def torchrun(folder: Path, env: dict[str, str]) -> Call:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "--max-restarts", "20", "--monitor-interval", "0.1", str(SCRIPT),
    ]  # fmt: skip
    # By default it keeps the workers' store, and may not come back at all.
    return Call(command, folder, {**os.environ, **env, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})


@pytest.mark.timeout(180)
@pytest.mark.parametrize("launcher", [elasticd, torchrun], ids=["elasticd", "torchrun"])
def test_restart_after_a_kill(tmp_path: Path, launcher: Callable[..., Call]) -> None:
    """Only figures, no limit."""
    folder = tmp_path / "run"
    folder.mkdir()
    said = Said(folder / "said")
    call = launcher(folder, {"GPU_SAID": str(said.path)})
    try:
        values = recoveries(said)
    except AssertionError:
        print(call.err)
        raise
    finally:
        call.send(signal.SIGTERM)
        call.process.wait(PATIENCE_S)
    name = launcher.__name__
    label = f"plain script over NCCL, {name}: kill to the next step"
    note(f"{label}, median", statistics.median(values), "s")
    note(f"{label}, most", max(values), "s")
