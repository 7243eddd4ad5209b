"""A run that saves to Azure is killed twice and goes on, each time with credentials given anew."""

import os
import re
import time
from collections import deque
from pathlib import Path

import pytest

from elasticd.checkpoint.storage.location import open_bucket
from tests.fixtures.azurite import AzurePlace, azurite_server, take_azure_keys
from tests.fixtures.cluster import until
from tests.fixtures.saved_runs import SavedRuns, assert_whole, checkpoints

EPOCHS = ("--epochs", "3")
STEPS = 24
GATES = range(4, STEPS)
GATE_S = 1.0
"""How long a step waits at most for a checkpoint that was asked for."""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_killed_run_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the environment, from a variable that is named, from a file that is named; the key of
    the account stands in no file of the run."""
    take_azure_keys(monkeypatch)
    calm = SavedRuns(tmp_path / "calm")
    assert calm.run(*EPOCHS, every="1h").code == 0
    with azurite_server(tmp_path.with_name(f"{tmp_path.name}-azurite")) as server:
        place = server.new_container("run")
        runs = SavedRuns(tmp_path / "run", place.url)
        secret = tmp_path.with_name(f"{tmp_path.name}-secret")
        secret.write_text(place.connection_string + "\n")
        interrupted(runs, place, 4, {"AZURE_STORAGE_CONNECTION_STRING": place.connection_string})
        runs.options = '{"connection_string": "env:NAMED_BY_ME"}'
        interrupted(runs, place, 12, {"NAMED_BY_ME": place.connection_string})
        restored = re.findall(r"Restored step (\d+) \(run 1, .* from storage", runs.said())
        assert restored and int(restored[0]) >= 4, runs.said()
        runs.options = f'{{"connection_string": "file:{secret}"}}'
        ended = runs.run(*EPOCHS)
        assert ended.code == 0, ended.err
        assert re.search(r"Restored step \d+ \(run [12], .* from storage", runs.said())
        assert runs.weights() == calm.weights()
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", place.connection_string)
        assert assert_whole(runs.url)[0].snapshot.step == STEPS
        runs.place.mark.wait_none_left()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert server.key.encode() not in path.read_bytes(), path


def test_container_that_is_missing_ends_the_job_at_the_start(tmp_path: Path) -> None:
    """In one sentence, which says what to do; the key is not in it."""
    with azurite_server(tmp_path / "azurite") as server:
        runs = SavedRuns(tmp_path / "run", "abfs://nowhere/run")
        key = {"AZURE_STORAGE_CONNECTION_STRING": server.connection_string()}
        ended = runs.run(*EPOCHS, env=key)
    assert ended.code != 0
    assert "is in a bucket that does not exist" in ended.err
    assert "Traceback" not in ended.err and server.key not in ended.err
    runs.place.mark.wait_none_left()


def interrupted(runs: SavedRuns, place: AzurePlace, step: int, env: dict[str, str]) -> None:
    """Start, and kill every process at once when a checkpoint of this step or a later is there that
    was not there before.

    Until then the ranks wait before each step, so that the steps are not over before that.
    """
    gates = ",".join(map(str, GATES))
    bucket = open_bucket(place.url, place.options, os.environ)
    # On a slow machine the run before may have come further than it was waited for.
    before = max((each.snapshot.step for each in checkpoints(bucket)), default=-1)
    call = runs.start(*EPOCHS, "--step-s", "0.05", "--gates", gates, env=env)
    closed = deque(GATES)
    opened_s = time.monotonic()

    def is_there() -> bool:
        nonlocal opened_s
        assert call.process.poll() is None, call.err
        if any(each.snapshot.step >= max(step, before + 1) for each in checkpoints(bucket)):
            return True
        # None is taken of a step while an older one is on its way: then of a later step.
        if len(closed) > 1 and time.monotonic() > opened_s + GATE_S:
            (runs.place.folder / f"gate-{closed.popleft()}").touch()
            opened_s = time.monotonic()
        return False

    until(is_there, lambda: call.err)
    for gate in GATES:
        (runs.place.folder / f"gate-{gate}").unlink(missing_ok=True)
    runs.place.mark.kill_all()
    call.process.wait()
