"""Checkpoints of in-process jobs, with real processes: what is lost, and what is not."""

import re
from pathlib import Path

import pytest

from elasticd.checkpoint.storage.location import open_bucket
from tests.fixtures.cluster import until
from tests.fixtures.saved_runs import (
    SCRIPT,
    STEPS_PER_EPOCH,
    SavedRuns,
    assert_whole,
    checkpoints,
    is_close,
    take_away,
)

EPOCHS = 3
STEPS = EPOCHS * STEPS_PER_EPOCH
TWO_WORKERS = ("--nproc-per-node", "2")
"""On one node, where the number of nodes makes no difference: each agent imports torch."""

OWN_BEGINNING = """
import copy, os, torch, elasticd
torch.seed()
net = torch.nn.Linear(4, 1)
state = elasticd.State(
    net=net,
    optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
    twin=lambda world: copy.deepcopy(net),
    mark=torch.rand(4),
)
def train(state, world):
    first, second = ([each.tolist() for each in m.parameters()] for m in (net, state.twin))
    print("began with", state.mark.tolist(), first, flush=True)
    assert first == second
    state.commit()
elasticd.run(train, state)
"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Weights of two workers that nothing happened to."""
    runs = SavedRuns(tmp_path_factory.mktemp("reference") / "run")
    ended = runs.run("--epochs", str(EPOCHS), agents=1, every="1h", flags=TWO_WORKERS)
    assert ended.code == 0, ended.err
    return runs.weights()


@pytest.fixture(scope="module")
def one_epoch(tmp_path_factory: pytest.TempPathFactory) -> SavedRuns:
    """The first epoch of two workers on two nodes, with several checkpoints; to be copied."""
    runs = SavedRuns(tmp_path_factory.mktemp("one") / "run")
    call = runs.start("--epochs", "1", "--gates", "5", every="3steps")
    # While one is on its way no other is begun, and the last takes the place of what waits.
    until(lambda: checkpoints(open_bucket(runs.url, {}, {})), because=lambda: call.err)
    (runs.place.folder / "gate-5").touch()
    assert call.wait().code == 0
    found = assert_whole(runs.url)
    assert found[0].snapshot.step == STEPS_PER_EPOCH and len(found) > 1
    return runs


def test_stopped_job_goes_on_bit_for_bit(
    tmp_path: Path, one_epoch: SavedRuns, reference: list[float]
) -> None:
    """One epoch, then the rest in a second call: the very weights of one call; a third has nothing
    left to do."""
    runs = one_epoch.copy(tmp_path / "run")
    for _ in range(2):
        ended = runs.run("--epochs", str(EPOCHS))
        assert ended.code == 0, ended.err
        assert runs.weights() == reference
    assert f"Restored step {STEPS} " in runs.said()
    assert assert_whole(runs.url)[0].snapshot.step == STEPS
    runs.place.mark.wait_none_left()


def test_first_world_takes_the_state_of_rank_0(tmp_path: Path) -> None:
    """Each script draws its own beginning, and nothing is stored yet."""
    (tmp_path / "own.py").write_text(OWN_BEGINNING)
    runs = SavedRuns(tmp_path / "run", script=str(tmp_path / "own.py"))
    ended = runs.run(agents=1, every="1h", flags=TWO_WORKERS)
    assert ended.code == 0, ended.err
    paths = sorted((runs.place.runs / "job").glob("gen-*/rank-*.out"))
    began = [
        line
        for path in paths
        for line in path.read_text().splitlines()
        if line.startswith("began with")
    ]
    assert len(began) == 2 and len(set(began)) == 1, began


@pytest.mark.parametrize("agents", [1, 3])
def test_another_world_size_goes_on(
    tmp_path: Path, one_epoch: SavedRuns, reference: list[float], agents: int
) -> None:
    """What two workers saved one or three take up; sums are made in another order, so nearly."""
    runs = one_epoch.copy(tmp_path / "run")
    ended = runs.run("--epochs", str(EPOCHS), agents=agents)
    assert ended.code == 0, ended.err
    assert "Restored step 8 " in runs.said()
    assert is_close(runs.weights(), reference)


def test_all_workers_at_once_cost_no_more_than_since_the_last_snapshot(
    tmp_path: Path, reference: list[float]
) -> None:
    """The keepers have it in memory; what they have is newer than what is durable, or as new."""
    runs = SavedRuns(tmp_path / "run")
    ended = runs.run(
        "--epochs", str(EPOCHS), "--step-s", "0.05", "--trick", "kill", "--at-step", "13",
        "--on-rank", "-1",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    found = re.search(r"Restored step (\d+) \(run 1, generation \d+\) from memory", runs.said())
    assert found is not None, runs.said()
    assert 2 <= int(found[1]) <= 12
    sizes = re.search(r"world sizes: ([\d >-]+)", ended.err)
    assert sizes is not None
    if "1" in sizes[1]:  # One was killed a moment before the other, which took steps alone.
        assert is_close(runs.weights(), reference)
    else:
        assert runs.weights() == reference
    assert_whole(runs.url)
    runs.place.mark.wait_none_left()


@pytest.mark.parametrize("what", ["manifest.json", "*.bin", "entry of the log"])
def test_damaged_newest_falls_back_and_says_so(
    tmp_path: Path, one_epoch: SavedRuns, reference: list[float], what: str
) -> None:
    """The one before is taken, whatever of the newest is damaged."""
    runs = one_epoch.copy(tmp_path / "run")
    steps = [entry.snapshot.step for entry in assert_whole(runs.url)]
    newest = sorted((runs.folder / "steps").iterdir())[-1]
    damaged = next(newest.glob(what), None) or sorted((runs.folder / "commits").glob("0*"))[-1]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 0x10
    damaged.write_bytes(data)
    ended = runs.run("--epochs", str(EPOCHS), agents=1, flags=TWO_WORKERS)
    assert ended.code == 0, ended.err
    assert f"Restored step {steps[1]} (run 1, generation 1) from storage" in runs.said()
    assert runs.weights() == reference


def test_other_model_is_told_by_name(tmp_path: Path, one_epoch: SavedRuns) -> None:
    """Tensors that differ, with their shapes on both sides, in one sentence."""
    runs = one_epoch.copy(tmp_path / "run")
    ended = runs.run("--epochs", "1", "--width", "9", agents=1)
    assert ended.code != 0
    assert "is of another model: " in ended.err
    assert "state.model.0.weight is float64 [8, 4] in the checkpoint and float64 [9, 4] here" in (
        ended.err
    )
    assert "Traceback" not in ended.err


def test_other_jobs_checkpoints_are_left_alone(tmp_path: Path, one_epoch: SavedRuns) -> None:
    """Another job at the same URL is refused before it has a worker, with the owner's name."""
    runs = one_epoch.copy(tmp_path / "run")
    ended = runs.place.run("--job", "stranger", "--checkpoint", runs.url, SCRIPT, "--epochs", "1")
    assert ended.code != 0
    assert "holds the checkpoints of the job job, not of stranger" in ended.err
    assert "Traceback" not in ended.err and "generation 1" not in ended.err
    assert not list((runs.place.runs / "stranger").glob("gen-*"))


def test_storage_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    """Not after an hour, when the first checkpoint is due."""
    runs = SavedRuns(tmp_path / "run", "file:///proc/nope")
    ended = runs.run("--epochs", "1", agents=1)
    assert ended.code != 0
    assert "/proc/nope" in ended.err
    assert "Traceback" not in ended.err


def test_storage_that_vanishes_does_not_stop_the_training(
    tmp_path: Path, reference: list[float]
) -> None:
    """It goes on, says so, and ends as ever."""
    runs = SavedRuns(tmp_path / "run")
    call = runs.start("--epochs", str(EPOCHS), "--gates", "5")
    until(lambda: any(runs.folder.glob("steps/*/manifest.json")), because=lambda: call.err)
    take_away(runs.folder, runs.folder.with_name("gone"))
    (runs.place.folder / "gate-5").touch()
    ended = call.wait()
    assert ended.code == 0, ended.err
    assert runs.weights() == reference
    assert "could not be saved" in runs.said() or "was not saved" in runs.said()


def test_lost_shard_comes_from_the_newest_snapshot(tmp_path: Path) -> None:
    """FSDP2: the survivors reshard what was saved, and end as a run that nothing happened to; a
    change that was planned costs no step."""
    weights = []
    for name, die, agents in (("calm", "-1", 1), ("run", "7", 2)):
        runs = SavedRuns(tmp_path / name, script="sharded.py")
        workers = ("--nproc-per-node", str(2 // agents))
        ended = runs.run("--epochs", str(EPOCHS), "--die-at", die, agents=agents, flags=workers)
        assert ended.code == 0, ended.err
        weights.append(runs.weights())
        assert_whole(runs.url)
    assert is_close(*weights)
    first, *others = re.findall(r"Restored step (\d+) \(run 1, generation (\d)\)", runs.said())
    assert int(first[0]) <= 7 and first[1] == "1"
    if others:  # The replacement came before the end.
        assert "world sizes: 2 -> 1 -> 2" in ended.err
        assert others[0][1] == "2" and int(others[0][0]) > int(first[0])
