"""The world changes about once a second while the upload of a checkpoint takes some ten."""

import os
import random
import signal
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.location import open_bucket
from tests.fixtures.cluster import Call, until
from tests.fixtures.s3 import KEYS, give_keys
from tests.fixtures.saved_runs import (
    STEPS_PER_EPOCH,
    SavedRuns,
    assert_whole,
    checkpoints,
    is_close,
)
from tests.fixtures.scripted_s3 import Answer, ScriptedS3

EPOCHS = 40
STEPS = EPOCHS * STEPS_PER_EPOCH
FLAGS = ("--nproc-per-node", "2", "--checkpoint-timeout", "60")
LEAST_CHANGES = 12


def workers(runs: SavedRuns) -> list[int]:
    """Without the pools that they were forked from, which have a name of underscores."""
    pools = runs.place.mark.processes("ELASTICD_WORKER=_")
    return sorted(set(runs.place.mark.processes("ELASTICD_WORKER=")) - set(pools))


def worlds(runs: SavedRuns) -> int:
    return len(list((runs.place.runs / "job").glob("gen-*")))


def disturb(runs: SavedRuns, call: Call, bucket: Bucket) -> None:
    """Kill one worker a second, until a checkpoint counts all the same."""
    rng = random.Random(4)

    def is_enough() -> bool:
        with suppress(ProcessLookupError, IndexError):
            os.kill(rng.choice(workers(runs)), signal.SIGKILL)
        time.sleep(1)
        # Counted are worlds: one that was killed may have been in none yet.
        return worlds(runs) >= LEAST_CHANGES and bool(checkpoints(bucket))

    until(is_enough, lambda: call.err)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_checkpoints_stay_whole_while_the_world_keeps_changing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What generation after generation leaves unfinished spoils nothing: what counts is whole, the
    newest is of the newest that came so far, and the training is that of an undisturbed run."""
    give_keys(monkeypatch)
    calm = SavedRuns(tmp_path / "calm")
    assert calm.run("--epochs", str(EPOCHS), every="1h", flags=("--nproc-per-node", "2")).code == 0
    with ScriptedS3() as s3:
        endpoint = {"endpoint_url": s3.place.endpoint_url}
        options = f'{{"endpoint_url": "{s3.place.endpoint_url}"}}'
        runs = SavedRuns(tmp_path / "run", s3.place.url, options=options)
        args = ("--epochs", str(EPOCHS), "--step-s", "0.1")
        call = runs.start(*args, every="1s", flags=FLAGS, env=KEYS)
        until(lambda: worlds(runs) and len(workers(runs)) == 4, lambda: call.err)
        s3.add(Answer.LATE, "PUT", times=100_000)
        bucket = open_bucket(s3.place.url, endpoint, os.environ)
        disturb(runs, call, bucket)
        changes = worlds(runs)
        found = checkpoints(bucket)
        s3.forget()
        ended = call.wait()
        assert ended.code == 0, ended.err
        assert changes >= LEAST_CHANGES
        every = checkpoints(bucket)
        assert every[0].snapshot.step == STEPS
        for newer, older in pairwise(every):
            assert newer.number > older.number
            assert newer.snapshot.step > older.snapshot.step
            assert newer.snapshot.generation >= older.snapshot.generation
        assert found, "none came through"
        assert is_close(runs.weights(), calm.weights())
        assert "samples, 0 repeated, 0 skipped" in ended.err
        assert_whole(s3.place.url, endpoint)
        runs.place.mark.wait_none_left()
