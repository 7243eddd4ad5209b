"""Ranks over NCCL that share one card: killed, stopped and hung, and no trace in the weights."""

import re
from pathlib import Path

import pytest

from tests.fixtures.local_run import LocalRun
from tests.gpu.card import note

SCRIPT = Path(__file__).parent / "scripts" / "nccl_ranks.py"
STEPS = 60
pytestmark = pytest.mark.timeout(180)


class Said:
    """What the ranks of a run wrote down, in the order of the clock."""

    def __init__(self, folder: Path) -> None:
        lines = (folder / "said").read_text().splitlines()
        self.lines = sorted((each.split() for each in lines), key=lambda words: float(words[1]))

    def first_after(self, kind: str) -> tuple[float, float]:
        """Return how long after the first such fault the survivors, and all, committed."""
        fault = next(each for each in self.lines if each[0] == kind)
        later = [
            each for each in self.lines if each[0] == "commit" and float(each[1]) > float(fault[1])
        ]
        again = [each for each in later if int(each[-1]) > int(fault[-1])]
        others = [each for each in again if each[7] != fault[7]]
        before = {each[7] for each in self.lines if float(each[1]) <= float(fault[1])}
        fresh = [each for each in again if each[7] not in before]
        return tuple(float(each[0][1]) - float(fault[1]) for each in (others, fresh))  # type: ignore[return-value]

    def processes(self) -> int:
        """Return how many processes have entered a world."""
        return len({each[7] for each in self.lines if each[0] == "enter"})


def trained(folder: Path, *args: str, agents: int = 2) -> tuple[set[str], Path]:
    """Return the weights with which the ranks ended."""
    folder.mkdir(parents=True, exist_ok=True)
    run = LocalRun(folder)
    ended = run.run(
        "--local-agents", str(agents), "--nnodes", str(agents), str(SCRIPT),
        "--steps", str(STEPS), *args,
    )  # fmt: skip
    written = "".join(file.read_text() for file in run.runs.rglob("*.out"))
    errors = "".join(file.read_text() for file in run.runs.rglob("*.err"))
    assert ended.code == 0, ended.err + errors
    found = re.findall(r"weights (\S+) on (?:cuda:0|cpu) of", written)
    assert len(found) == agents, written + ended.err + errors
    return set(found), folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    weights, _ = trained(tmp_path_factory.mktemp("undisturbed") / "run")
    assert len(weights) == 1
    return weights


def test_ranks_end_alike(undisturbed: set[str]) -> None:
    """And so does the flag's training."""


@pytest.mark.parametrize("point", ["begin", "reduced", "stepped"])
@pytest.mark.parametrize("flag", [False, True], ids=["", "flag"])
def test_killed_rank_leaves_no_trace_in_the_weights(
    tmp_path: Path, undisturbed: set[str], point: str, flag: bool
) -> None:
    """Rank 0 and rank 1, one after the other."""
    faults = ("--fault", f"20:1:{point}:kill", "--fault", f"40:0:{point}:kill")
    args = (*faults, "--abort-flag") if flag else faults
    weights, folder = trained(tmp_path / "run", *args)
    assert weights == undisturbed
    others, fresh = Said(folder).first_after("kill")
    assert Said(folder).processes() == 4, "only the ranks that were killed were replaced"
    label = f"NCCL, kill at {point}{', flag' if flag else ''}"
    note(f"{label}: to the next commit of the other rank", others, "s")
    note(f"{label}: to that of the new process", fresh, "s")


@pytest.mark.parametrize("kind", ["stop", "spin"])
def test_rank_that_hangs_is_replaced(tmp_path: Path, undisturbed: set[str], kind: str) -> None:
    """Stopped, or with a kernel on its device that does not end."""
    weights, folder = trained(tmp_path / "run", "--fault", f"30:1:begin:{kind}")
    assert weights == undisturbed
    others, _ = Said(folder).first_after(kind)
    note(f"NCCL, {kind}: to the next commit of the other rank", others, "s")
    assert Said(folder).processes() == 3, "only the rank that hung was replaced"


def test_three_ranks_lose_one(tmp_path: Path) -> None:
    """Two survivors keep their processes.

    All draw the same: the order in which three are summed up depends on where in DDP's bucket a
    number stands, and that differs between a replica's first step and its second.
    """
    plain, _ = trained(tmp_path / "plain", "--alike", agents=3)
    faults = ("--fault", "20:1:reduced:kill")
    weights, folder = trained(tmp_path / "run", "--alike", *faults, agents=3)
    assert len(weights) == 1 and weights == plain
    others, _ = Said(folder).first_after("kill")
    note("NCCL, three ranks, kill: to the next commit of another rank", others, "s")
    assert Said(folder).processes() == 4
