"""A process dies between any two steps of a save: what was reported durable stays so."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.fail_point import POINTS
from elasticd.checkpoint.storage.location import open_bucket
from tests.fixtures.cluster import Ended, until
from tests.fixtures.saved_runs import (
    STEPS_PER_EPOCH,
    SavedRuns,
    assert_whole,
    checkpoints,
    is_close,
)

EPOCHS = 3
STEPS = EPOCHS * STEPS_PER_EPOCH
AT_ONCE = 3
KILLED = ("--trick", "kill", "--at-step", "9", "--on-rank", "-1")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    runs = SavedRuns(tmp_path_factory.mktemp("reference") / "run")
    assert runs.run("--epochs", str(EPOCHS), every="1h").code == 0
    return runs.weights()


@pytest.fixture(scope="module")
def stories(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, tuple[SavedRuns, Future[Ended]]]]:
    """A run for each point; the process that comes there first dies there."""
    folder = tmp_path_factory.mktemp("points")

    def run(runs: SavedRuns, point: str) -> Ended:
        env = {"TEST_FAIL_POINT": f"{point},{runs.place.folder}"}
        return runs.run("--epochs", str(EPOCHS), "--step-s", "0.03", env=env)

    with ThreadPoolExecutor(AT_ONCE) as executor:
        stories = {}
        for point in POINTS:
            runs = SavedRuns(folder / point.replace(".", "-"))
            stories[point] = runs, executor.submit(run, runs, point)
        yield stories


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", POINTS)
def test_death_at_a_point_of_a_save_costs_no_checkpoint(
    stories: dict[str, tuple[SavedRuns, Future[Ended]]], reference: list[float], point: str
) -> None:
    """Worker or keeper: the training ends as ever, and every checkpoint that counts is whole."""
    runs, call = stories[point]
    ended = call.result()
    assert ended.code == 0, ended.err
    assert (runs.place.folder / point).exists(), "nobody came to that point"
    assert is_close(runs.weights(), reference)
    steps = [entry.snapshot.step for entry in assert_whole(runs.url)]
    assert steps[0] == STEPS
    assert steps == sorted(steps, reverse=True)
    runs.place.mark.wait_none_left()


def test_worker_that_is_killed_in_its_copy_holds_up_no_later_checkpoint(tmp_path: Path) -> None:
    """Its part never comes, and the others' keepers need not know: the next snapshot is taken.

    The last fourth of the steps waits for one of a later generation, and begins none meanwhile: a
    part that is missing counts as lost, or has a second holder, only later.
    """
    runs = SavedRuns(tmp_path / "run")
    env = {"TEST_FAIL_POINT": f"save.copied,{runs.place.folder}"}
    flags = ("--checkpoint-keep", "0")
    epochs = 20
    call = runs.start(
        "--epochs", str(epochs), "--step-s", "0.02", "--gates", "121", every="20steps", env=env,
        flags=flags,
    )  # fmt: skip
    bucket = open_bucket(runs.url, {}, {})
    until(
        lambda: any(each.snapshot.generation > 1 for each in checkpoints(bucket)),
        because=lambda: call.err,
    )
    (runs.place.folder / "gate-121").touch()
    ended = call.wait()
    assert ended.code == 0, ended.err
    assert (runs.place.folder / "save.copied").exists(), "nobody came to that point"
    last, *before = [entry.snapshot for entry in checkpoints(bucket)]
    assert last.step == epochs * STEPS_PER_EPOCH
    assert any(each.generation > 1 for each in before), runs.said()


def test_killed_keepers_and_workers_go_back_to_what_is_durable(
    tmp_path: Path, reference: list[float]
) -> None:
    """Nothing is left in memory; then storage has it."""
    runs = SavedRuns(tmp_path / "run")
    call = runs.start("--epochs", str(EPOCHS), "--gates", "9", *KILLED, every="1steps")
    until(lambda: any(runs.folder.glob("steps/*/manifest.json")), because=lambda: call.err)
    bucket = open_bucket(runs.url, {}, {})
    durable = until(lambda: checkpoints(bucket), because=lambda: call.err)[0].snapshot.step
    for pid, command in runs.place.mark.processes().items():
        if "elasticd.keeper" in command:
            os.kill(pid, signal.SIGKILL)
    (runs.place.folder / "gate-9").touch()
    ended = call.wait()
    assert ended.code == 0, ended.err
    found = re.search(r"Restored step (\d+) .* from storage", runs.said())
    assert found is not None, runs.said()
    assert int(found[1]) >= durable
    assert is_close(runs.weights(), reference)
    assert_whole(runs.url)
