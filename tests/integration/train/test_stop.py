"""A stop loses nothing: the ranks leave after one step, and what they have is durable at the end.

Where that cannot be, the stop ends in its time all the same, and says what is lost.
"""

import functools
import json
import operator
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.checkpoint.storage.location import open_bucket
from tests.fixtures.applied import assert_none_done_again
from tests.fixtures.cluster import Call, Cluster, Ended, cluster_on, until
from tests.fixtures.s3 import KEYS, give_keys
from tests.fixtures.saved_runs import (
    STEPS_PER_EPOCH,
    SavedRuns,
    assert_whole,
    checkpoints,
    is_close,
)
from tests.fixtures.scripted_s3 import Answer, ScriptedS3

EPOCHS = 12
STEPS = EPOCHS * STEPS_PER_EPOCH
WORKERS = ("--nproc-per-node", "2")
FOUR_WORKERS = ("--nproc-per-node", "4")
"""As many on one node, where nothing happens to nodes: each agent imports torch."""
SAVED = re.compile(r"^\[elasticd\] state: saved at step (\d+), nothing is lost$", re.MULTILINE)
LOST = re.compile(
    r"^\[elasticd\] state: stopped at step (\d+) without saving it; step (\d+) is durable, "
    r"the (\d+) steps? since then may be lost: (.+)$",
    re.MULTILINE,
)
GATE = 5
"""All ranks wait before the step after this one."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Weights of four workers that nothing happened to."""
    runs = SavedRuns(tmp_path_factory.mktemp("reference") / "run")
    ended = runs.run("--epochs", str(EPOCHS), every="1h", agents=1, flags=FOUR_WORKERS)
    assert ended.code == 0, ended.err
    return runs.weights()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[SavedRuns]:
    runs = SavedRuns(tmp_path / "run")
    yield runs
    runs.place.mark.wait_none_left()


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "elasticd stop"])
def test_stop_loses_nothing(runs: SavedRuns, reference: list[float], how: str) -> None:
    """The next call goes on from the very step, to the weights of a run that nobody stopped."""
    # Slowly: `elasticd stop` is a process that must begin before the run is over.
    args = ("--epochs", str(EPOCHS), "--step-s", "0.2")
    call = runs.start(*args, every="1h", flags=WORKERS)
    wait_trains(runs, call)
    if how.startswith("SIG"):
        number = signal.Signals[how]
        call.send(number)
        ended = call.wait()
        assert ended.code == 128 + number
    else:
        stop = runs.place.command("stop", "job")
        ended = call.wait()
        assert ended.code == 128 + signal.SIGTERM
        assert f"job job was saved at step {saved_step(ended)}, nothing is lost\n" in stop.out
    step = saved_step(ended)
    assert 0 < step < STEPS
    assert [entry.snapshot.step for entry in assert_whole(runs.url)] == [step]
    listed = runs.place.command("checkpoint", "ls", runs.url)
    assert re.search(rf"^ *\d+ +{step} ", listed.out, re.MULTILINE), listed.out
    again = runs.run("--epochs", str(EPOCHS), every="1h", agents=1, flags=FOUR_WORKERS)
    assert again.code == 0, again.err
    assert f"Restored step {step} (run 1, generation 1)" in runs.said()
    assert f"trained: {STEPS} steps, {EPOCHS} epochs" in again.err
    assert "samples, 0 repeated, 0 skipped" in again.err
    assert is_close(runs.weights(), reference), "the sums of four are made in another order"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_rank_that_dies_meanwhile_holds_up_nothing(runs: SavedRuns, number: int) -> None:
    """No step is left that all ranks made, and the time would be longer than this test's."""
    call = wait_at_gate(runs, flags=("--shutdown-timeout", "600"))
    call.send(signal.SIGINT)
    until(lambda: logs(runs).count('"phase": "stopped"') == 2, lambda: logs(runs))
    os.kill(workers(runs)[-1], number)
    open_gate(runs)
    assert_stopped_at(runs, call.wait(), GATE)


@pytest.mark.parametrize("trick", ["sleep", "stuck"])
def test_rank_that_hangs_is_ended_in_time(runs: SavedRuns, trick: str) -> None:
    """One that comes to no step, and one that even a signal does not wake."""
    tricks = ("--trick", trick, "--at-step", str(GATE), "--on-rank", "1")
    call = wait_at_gate(runs, *tricks, flags=("--shutdown-timeout", "4"))
    open_gate(runs)
    until(lambda: f"trick {trick}" in outputs(runs), lambda: call.err)
    call.send(signal.SIGINT)
    assert_stopped_at(runs, call.wait(), GATE)


def test_second_ctrl_c_does_not_wait(runs: SavedRuns) -> None:
    """The grace would be longer than the patience of this test."""
    call = wait_at_gate(runs, agents=1, flags=(*WORKERS, "--shutdown-timeout", "600"))
    call.send(signal.SIGINT)
    until(lambda: '"phase": "stopped"' in logs(runs), lambda: logs(runs))
    assert call.process.poll() is None, "it waits for a step"
    call.send(signal.SIGINT)
    ended = call.wait()
    assert ended.code == 128 + signal.SIGINT
    assert "saved at step" not in ended.err
    assert_whole(runs.url)


def test_storage_that_hangs_costs_the_time_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step is in memory only: that is said, with the step that is durable."""
    give_keys(monkeypatch)
    with ScriptedS3() as s3:
        options = f'{{"endpoint_url": "{s3.place.endpoint_url}"}}'
        runs = SavedRuns(tmp_path / "run", s3.place.url, options=options)
        flags = (*WORKERS, "--shutdown-timeout", "10")
        call = wait_at_gate(runs, agents=1, flags=flags, env=KEYS)
        s3.add(Answer.HANG, "PUT", times=1000)
        call.send(signal.SIGINT)
        open_gate(runs)
        ended = call.wait()
        why = assert_stopped_at(runs, ended, GATE + 1)
        assert why == "the upload did not end within --shutdown-timeout"
        assert re.search(r"elasticd: The job was stopped at step \d+ without saving it", ended.err)
        runs.place.mark.wait_none_left()


def test_job_without_checkpoint_ends_at_once(runs: SavedRuns) -> None:
    """It has nothing to wait for: its ranks never come to another step."""
    call = runs.place.call(
        "--job", "job", *WORKERS, "--shutdown-timeout", "600", runs.script, "--gates", str(GATE),
    )  # fmt: skip
    wait_trains(runs, call)
    call.send(signal.SIGINT)
    ended = call.wait()
    assert ended.code == 128 + signal.SIGINT
    assert "state:" not in ended.err


@pytest.mark.parametrize("nodes", ["1:1", "2:2", "1:2"])
def test_all_agents_get_sigterm_at_once(tmp_path: Path, nodes: str) -> None:
    """A cluster that is shut down: when its machines are back, no step is done again."""
    with cluster_on(tmp_path / "cluster") as cluster:
        shut_down_and_go_on(cluster, nodes)


def shut_down_and_go_on(cluster: Cluster, nodes: str) -> None:
    count = int(nodes[-1])
    names = [f"{nodes.replace(':', '-')}-{number}" for number in range(count)]
    for name in names:
        cluster.daemon(name, slots=2)
    job = cluster.submit(
        f"all-{nodes.replace(':', '-')}", "--nnodes", nodes, "--nproc-per-node", "2",
        "--checkpoint", f"file://{cluster.folder}/saved-{names[0]}", "--checkpoint-every", "1h",
        script="steady.py",
    )  # fmt: skip
    before = job.wait_steady(2 * count)
    for name in names:
        cluster.daemons[name].send(signal.SIGTERM)
    for name in names:
        process = cluster.daemons[name].process
        assert process is not None
        assert process.wait() == 0
        cluster.daemons[name].wait_gone()
    told = [result.saved for result in job.results.values() if result.saved is not None]
    # A node that was heard of first may have left the other alone, which then saved for both.
    saved = functools.reduce(operator.add, told)
    assert saved.durable_step == saved.at_step, told
    for name in names:
        cluster.daemons[name].start()
    job.wait_step(size=2 * count, after=before)
    assert job.finish().phase.value == "succeeded"
    training = next(t for r in job.results.values() if (t := r.training) is not None)
    assert (training.repeated, training.skipped) == (0, 0)
    assert_none_done_again(cluster.runs, job.name, before)
    for name in names:
        assert cluster.daemons[name].end() == 0


# --- what the tests look at -----------------------------------------------------------------------


def wait_trains(runs: SavedRuns, call: Call) -> None:
    until(lambda: "old replicas" in outputs(runs), lambda: call.err)


def wait_at_gate(
    runs: SavedRuns,
    *args: str,
    agents: int = 2,
    flags: tuple[str, ...],
    env: dict[str, str] | None = None,
) -> Call:
    """Have a checkpoint of step 4, none on its way, and the ranks before step 6."""
    call = runs.start(
        "--epochs", "100", "--gates", str(GATE), *args, agents=agents, every="4steps", flags=flags,
        env=env,
    )  # fmt: skip
    bucket = open_bucket(runs.url, json.loads(runs.options or "{}"), os.environ)
    until(lambda: checkpoints(bucket), lambda: call.err)
    return call


def open_gate(runs: SavedRuns) -> None:
    (runs.place.folder / f"gate-{GATE}").touch()


def outputs(runs: SavedRuns) -> str:
    paths = (runs.place.runs / "job").glob("gen-*/rank-*.out")
    return "".join(path.read_text() for path in paths)


def logs(runs: SavedRuns) -> str:
    paths = (runs.place.runs / "job" / "agents").glob("local-?.log")
    return "".join(path.read_text() for path in paths)


def workers(runs: SavedRuns) -> list[int]:
    """Without the pools that they were forked from, which have a name of underscores."""
    pools = runs.place.mark.processes("ELASTICD_WORKER=_")
    return sorted(set(runs.place.mark.processes("ELASTICD_WORKER=")) - set(pools))


def saved_step(ended: Ended) -> int:
    found = SAVED.search(ended.err)
    assert found is not None, ended.err
    return int(found[1])


def assert_stopped_at(runs: SavedRuns, ended: Ended, step: int) -> str:
    """It ended by Ctrl-C at this step or soon after, and said in one sentence what is lost.

    Returns why: the word may come to the ranks when they have begun another step.
    """
    assert ended.code == 128 + signal.SIGINT
    found = LOST.search(ended.err)
    assert found is not None, ended.err
    at_step, durable_step, lost = map(int, found.groups()[:3])
    assert at_step >= step and lost == at_step - durable_step
    newest = checkpoints(open_bucket(runs.url, json.loads(runs.options or "{}"), os.environ))[0]
    assert durable_step == newest.snapshot.step
    return found[4]
