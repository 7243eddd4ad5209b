"""HSDP with real processes: what a lost rank had, a replica has too, so no step is lost with it."""

import re
from pathlib import Path

import pytest

from tests.fixtures.saved_runs import SavedRuns, assert_whole

EPOCHS = 4
STEPS = EPOCHS * 9
SIZE = 4
AGENTS = 2
PLACES = ("--nproc-per-node", str(SIZE // AGENTS))
"""Not a node for each rank: each agent imports torch."""
STEPPING = ("--step-s", "0.05", "--whole", str(SIZE))
"""So that a replacement is back before the steps are over."""


class Runs(SavedRuns):
    """With no snapshot but that of the end: it would be of no help."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, script="hybrid.py")

    def curve(self) -> tuple[list[float], list[int]]:
        """The mean loss of each step, and the sizes of the worlds; each step was done once."""
        parts: dict[int, list[float]] = {}
        sizes: dict[int, int] = {}
        for path in sorted((self.place.runs / "job").glob("gen-*/rank-*.out")):
            for line in path.read_text().splitlines():
                if line.startswith("L "):
                    words = line.split()
                    step, loss, size = int(words[1]), float(words[2]), int(words[3])
                    parts.setdefault(step, []).append(loss)
                    assert sizes.setdefault(step, size) == size, f"{step} twice"
        assert sorted(parts) == list(range(1, STEPS + 1))
        for step, found in parts.items():
            assert len(found) == sizes[step], f"{step} twice"
        return [sum(parts[step]) for step in sorted(parts)], [sizes[step] for step in sorted(parts)]

    def last_curve(self) -> list[float]:
        """The mean loss of each step, of the last generation that made it."""
        last: dict[int, tuple[int, dict[str, float]]] = {}
        for path in (self.place.runs / "job").glob("gen-*/rank-*.out"):
            generation = int(path.parent.name.removeprefix("gen-"))
            for line in path.read_text().splitlines():
                if line.startswith("L "):
                    step, loss = int(line.split()[1]), float(line.split()[2])
                    if generation > last.get(step, (0, {}))[0]:
                        last[step] = generation, {}
                    if generation == last[step][0]:
                        last[step][1][path.name] = loss
        assert sorted(last) == list(range(1, STEPS + 1))
        return [sum(last[step][1].values()) for step in sorted(last)]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The curve of four ranks that nothing happened to."""
    runs = Runs(tmp_path_factory.mktemp("calm") / "run")
    ended = runs.run(
        "--epochs", str(EPOCHS), agents=1, every="1h", flags=("--nproc-per-node", str(SIZE))
    )
    assert ended.code == 0, ended.err
    return runs.curve()[0]


@pytest.mark.parametrize(
    ("die", "step"),
    [
        pytest.param("13:3:backward", 13, id="one rank after its sums"),
        pytest.param("13:0:step", 14, id="rank 0 after its step"),
        pytest.param("13:2,3:backward", 13, id="a replica"),
        pytest.param("13:0,3:forward", 13, id="half of each replica"),
        pytest.param("13:3:forward 13:2:forward", 13, id="the rest of a replica before a commit"),
    ],
)
def test_lost_shard_comes_from_a_replica(
    tmp_path: Path, calm: list[float], die: str, step: int
) -> None:
    """The survivors go on from the step where they stood, spread anew over fewer ranks, and again
    over all when replacements are there; no step is done twice, and the curve is that of a run that
    nothing happened to."""
    runs = Runs(tmp_path / "run")
    ended = runs.run(
        "--epochs", str(EPOCHS), "--die", *die.split(), *STEPPING, agents=AGENTS,
        every="1h", flags=PLACES,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    curve, sizes = runs.curve()
    assert curve == pytest.approx(calm, rel=1e-9, abs=0.0)
    assert sizes[0] == SIZE and sizes[-1] == SIZE and min(sizes) < SIZE
    first, *others = re.findall(
        r"Restored step (\d+) \(run 1, generation \d+\) from ([\w ]+):", runs.said()
    )
    assert first == (str(step), "the memory of the other ranks")
    assert others and {place for _, place in others} == {"the memory of the other ranks"}
    newest, *older = [entry.snapshot.step for entry in assert_whole(runs.url)]
    assert newest == STEPS and all(each > step for each in older), "there was none to go back to"
    runs.place.mark.wait_none_left()


def test_shard_that_no_rank_has_is_told(tmp_path: Path) -> None:
    """Both that had it die, and there is no --checkpoint: nobody trains on with half a state."""
    runs = Runs(tmp_path / "run")
    ended = runs.place.run(
        "--job", "job", "--local-agents", str(AGENTS), *PLACES, "--max-restarts", "0",
        runs.script, "--epochs", str(EPOCHS), "--die", "13:1,3:forward", *STEPPING,
    )  # fmt: skip
    assert "a part of it was lost with its rank" in runs.said()
    assert ended.code != 0


def test_shard_that_is_lost_before_the_first_snapshot_costs_what_was_trained(
    tmp_path: Path, calm: list[float]
) -> None:
    """Both that had it die: with --checkpoint the training begins anew, from the same beginning,
    and the survivors, who find nothing saved, cost no restart."""
    runs = Runs(tmp_path / "run")
    runs.place.folder.mkdir(exist_ok=True)
    (runs.place.folder / "survived").touch()  # No survivor makes a step for which others may wait.
    ended = runs.run(
        "--epochs", str(EPOCHS), "--die", "13:1,3:forward", *STEPPING, agents=AGENTS,
        every="1h", flags=(*PLACES, "--max-restarts", "0"),
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "No rank has a state to go on from, and there is no checkpoint" in runs.said()
    assert runs.last_curve() == pytest.approx(calm, rel=1e-9, abs=0.0)
    runs.place.mark.wait_none_left()


def test_no_checkpoint_is_needed_where_a_replica_lives(tmp_path: Path, calm: list[float]) -> None:
    """Without --checkpoint the ranks' own memory is all that there is, and enough."""
    runs = Runs(tmp_path / "run")
    ended = runs.place.run(
        "--job", "job", "--local-agents", str(AGENTS), *PLACES, runs.script, "--epochs",
        str(EPOCHS), "--die", "13:2:backward", *STEPPING,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    curve, sizes = runs.curve()
    assert curve == pytest.approx(calm, rel=1e-9, abs=0.0)
    assert sizes[-1] == SIZE and min(sizes) < SIZE
    assert "Restored step 13 from the memory of the other ranks: " in runs.said()
