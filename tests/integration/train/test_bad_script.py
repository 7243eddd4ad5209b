"""Scripts that use elasticd wrongly, or fail by themselves: what their user gets to read.

Each is run as a person would, on two workers. Those of a fixture are all started before its first
test, a few at a time, since most of the time goes into starting.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fixtures.cluster import SCRIPTS, Call, Ended
from tests.fixtures.local_run import LocalRun

SCRIPT = SCRIPTS / "misused.py"
AT_ONCE = 3

FAILS = {
    "commit outside": "CallError: commit() was called outside of elasticd.run: call it in train",
    "run twice": "CallError: elasticd.run has returned already: .* Put the second part into",
    "no state_dict": "CallError: State(thing=...) is a Nothing, .*: give its class state_dict",
    "unknown optimizer": "CallError: .*SGD that elasticd does not know .*: give it to State(",
    "small batch": "CallError: batch_size is the global batch, .* give a batch_size of at least 2",
    "another model": "ScriptDiffers: The state of rank 1 differs from that of rank 0: "
    ".*model.0.weight .*Build the same model",
    "wrong shape on all": "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    "exit on all": "SystemExit: 7",
    "return early": "CallError: rank 1 returned from train after step 3, and other ranks wait",
    "commit in a thread": "CallError: commit() was called from another thread.*: ",
}
"""The sentence that says what is wrong and what to do; `.*` stands for anything."""

QUICK = {"raise on all": "ValueError: no luck today"}
"""Tells it for all of them where the soaks are left out."""

GOES_ON = ("raise on one", "another length")
"""One rank's trouble."""

ONCE = ("unknown optimizer", "small batch", "raise on all", "commit in a thread", "exit on all")
"""All ranks do it at the same step: a restart would only do it again."""


Calls = dict[str, Future[Ended]]


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    yield from called(tmp_path_factory.mktemp("bad"), (*GOES_ON, *QUICK))


@pytest.fixture(scope="module")
def slow_calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    yield from called(tmp_path_factory.mktemp("bad"), FAILS)


def called(folder: Path, cases: Iterable[str]) -> Iterator[Calls]:
    def run(case: str) -> Ended:
        place = LocalRun(folder / re.sub(r"\W", "-", case), shares_server=True)
        place.folder.mkdir()
        more = ("--job", "bad", "--nproc-per-node", "2", "--max-restarts", "1")
        ended = place.run(*more, str(SCRIPT), case, str(place.folder))
        place.mark.wait_none_left()
        return ended

    with ThreadPoolExecutor(AT_ONCE) as executor:
        yield {case: executor.submit(run, case) for case in cases}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", FAILS)
def test_user_reads_what_is_wrong(slow_calls: Calls, case: str) -> None:
    assert_told(slow_calls, case, FAILS[case])


@pytest.mark.parametrize("case", QUICK)
def test_user_reads_what_the_script_raised(calls: Calls, case: str) -> None:
    assert_told(calls, case, QUICK[case])


def assert_told(calls: Calls, case: str, told: str) -> None:
    ended = calls[case].result()
    assert ended.code not in (0, None)
    sentence = ".*".join(map(re.escape, told.split(".*")))
    failure = ended.err[ended.err.index("[elasticd] job failed") :]
    assert re.search(sentence, failure), ended.err
    assert "full log: " in failure
    if case in ONCE:
        assert "[elasticd] generations: 1," in failure
        assert "a restart would not help" in failure
    else:
        assert re.search(r"generations: [1-5],", failure), "a restart loop"


def test_replacement_with_other_data_is_refused_and_the_others_go_on(calls: Calls) -> None:
    """An old copy on one node must not end a job of a hundred; it is tried ever more seldom."""
    ended = calls["another length"].result()
    assert ended.code == 0, ended.err
    assert "320 steps, 40 epochs, 2560 samples, 0 repeated, 0 skipped" in ended.err
    refusals = re.findall(
        r"failed: rank 1 .* CallError: The state of rank 1 differs from that of rank 0: .*data of "
        r"65 samples.* where rank 0 has .*data of 64 samples.*give each the same data",
        ended.err,
    )
    assert 2 <= len(refusals) <= 5


def test_traceback_of_the_script_is_shown(calls: Calls) -> None:
    """With the line of the script that raised."""
    err = calls["raise on all"].result().err
    assert re.search(r'misused.py", line \d+, in misbehave\n.* raise ValueError', err)


def test_error_of_one_rank_costs_its_process_only(calls: Calls) -> None:
    """The others go on without it; its error is shown all the same."""
    ended = calls["raise on one"].result()
    assert ended.code == 0, ended.err
    assert re.search(r"generation 2: .* failed: rank 1 .* ValueError: no luck today", ended.err)
    assert "24 steps, 3 epochs, 192 samples, 0 repeated, 0 skipped" in ended.err


def test_torchrun_is_pointed_out(tmp_path: Path) -> None:
    """Its ranks would wait for worlds that nobody names."""
    place = LocalRun(tmp_path / "torchrun")
    place.folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    ended = Call(
        [*command, "--nproc-per-node", "2", str(SCRIPT), "none", str(tmp_path)],
        place.folder,
        place.mark.environ(),
    ).wait()
    place.mark.wait_none_left()
    assert ended.code != 0
    assert re.search(
        r"CallError: elasticd.run does not work under torchrun: start the script with elasticd run",
        ended.err,
    ), ended.err
