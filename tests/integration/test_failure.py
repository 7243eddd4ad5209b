"""Errors of the script: what is tried again, what is not, and what a person is told at the end.

The calls cost seconds each and do not depend on each other: they run two at a time.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elasticd.control.local_run.archive import load
from elasticd.control.report.report import JobReport, read_job
from elasticd.records.ids import JobName
from elasticd.records.keys import Keys
from elasticd.records.reason import Phase, Reason
from elasticd.store.memory import MemoryStore
from tests.fixtures.cluster import SCRIPTS, Ended
from tests.fixtures.local_run import LocalRun
from tests.fixtures.patience import patience_s

SILENT_S = f"{patience_s(10.0):g}"
FLAGS: Mapping[str, tuple[str, ...]] = {
    "raise": ("--max-restarts", "0"),
    "raise-otherwise": ("--max-restarts", "1"),
    "raise-in-group": ("--max-restarts", "1", "--nproc-per-node", "2"),
    "record": ("--max-restarts", "0"),
    "poison": ("--max-restarts", "10"),
    "exit-7": ("--max-restarts", "0"),
    "segv": ("--max-restarts", "0"),
    "heal": ("--max-restarts", "1"),
    "early": ("--nproc-per-node", "2"),
    "silent": ("--output-timeout", SILENT_S, "--max-restarts", "0", "--local-agents", "2"),
    "leaves": ("--max-restarts", "0", "--nproc-per-node", "2"),
}
Outcome = tuple[Ended, JobReport]
# The first of these tests waits for all runs; they took over two minutes beside other work.
pytestmark = pytest.mark.timeout(480)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Outcome]]:
    """Each way to fail, and how its run ended."""
    place = LocalRun(tmp_path_factory.mktemp("runs"), shares_server=True)

    def outcome(how: str) -> Outcome:
        script = SCRIPTS / "fail.py"
        argument = "raise" if how == "poison" else how
        ended = place.run("--job", how, *FLAGS[how], str(script), argument)
        store = MemoryStore()
        load(place.runs / how / "records.json", store)
        report = read_job(store, Keys(), JobName(how))
        assert report is not None
        return ended, report

    with ThreadPoolExecutor(2) as executor:
        yield dict(zip(FLAGS, executor.map(outcome, FLAGS), strict=True))
    place.mark.wait_none_left()


def check_last_words(ended: Ended, how: str, *, rank: int, generation: int) -> None:
    """The first failing rank, its host, how it ended, its traceback, its log: the last lines."""
    lines = ended.err.splitlines()
    begin = max(i for i, line in enumerate(lines) if "last failure: " in line)
    assert f"last failure: rank {rank} on " in lines[begin]
    assert f"generation {generation}: exit code 1" in lines[begin]
    assert "ValueError: " in lines[-2]
    assert lines[-1].startswith("full log: ") or "full log: " in lines[-1]
    log = Path(lines[-1].rpartition("full log: ")[2])
    assert log.parts[-3:] == (how, f"gen-{generation}", f"rank-{rank}.err")
    assert "Traceback" in log.read_text()
    assert "ChildFailedError" not in ended.err


def test_error_ends_the_job_where_no_restart_is_allowed(outcomes: Mapping[str, Outcome]) -> None:
    """`--max-restarts 0`, as torchrun's default; works without a decorator in the script."""
    ended, report = outcomes["raise"]
    assert ended.code == 1
    assert (report.status.phase, report.status.reason) == (Phase.FAILED, Reason.BUDGET_SPENT)
    assert report.status.generation == 1
    check_last_words(ended, "raise", rank=0, generation=1)


def test_other_error_each_time_uses_up_the_budget(outcomes: Mapping[str, Outcome]) -> None:
    """One restart is one restart; the last error is the one that is told."""
    ended, report = outcomes["raise-otherwise"]
    assert ended.code == 1
    assert (report.status.phase, report.status.reason) == (Phase.FAILED, Reason.BUDGET_SPENT)
    assert (report.status.generation, report.status.budget.user_error) == (2, 1)
    assert "too hot in 2" in ended.err.splitlines()[-2]


def test_same_error_behind_a_group_uses_up_the_budget(outcomes: Mapping[str, Outcome]) -> None:
    """A group was formed, so the error may be one of a node: it is tried again.

    The other rank fails with an echo of it, and is not the one that is told.
    """
    ended, report = outcomes["raise-in-group"]
    assert ended.code == 1
    assert report.status.reason is Reason.BUDGET_SPENT
    assert report.status.generation == 2
    check_last_words(ended, "raise-in-group", rank=1, generation=2)


def test_same_error_before_any_group_is_not_tried_for_an_hour(
    outcomes: Mapping[str, Outcome],
) -> None:
    """Ten restarts are allowed, one is made: the second error is the first one again."""
    ended, report = outcomes["poison"]
    assert ended.code == 1
    assert (report.status.phase, report.status.reason) == (Phase.FAILED, Reason.REPEATED_ERROR)
    assert report.status.generation == 2
    check_last_words(ended, "poison", rank=0, generation=2)


def test_error_file_of_record_is_used(outcomes: Mapping[str, Outcome]) -> None:
    """`@record` writes it as under torchrun, and nothing is told twice."""
    ended, report = outcomes["record"]
    failure = report.status.failure
    assert failure is not None
    assert failure.exception == "ValueError: rank 0 is too hot"
    assert failure.where.endswith("fail.py:" + str(line_of('raise ValueError(f"rank')))
    assert Path(failure.log_path).with_name("rank-0.error.json").exists()
    check_last_words(ended, "record", rank=0, generation=1)


def line_of(text: str) -> int:
    lines = (SCRIPTS / "fail.py").read_text().splitlines()
    return 1 + next(i for i, line in enumerate(lines) if text in line)


def test_exit_code_of_the_script_is_that_of_the_call(outcomes: Mapping[str, Outcome]) -> None:
    """There is no traceback then, and none is made up."""
    ended, report = outcomes["exit-7"]
    assert ended.code == 7
    assert report.status.failure is not None
    assert report.status.failure.exit_code == 7
    assert "exit code 7" in ended.err
    assert "Traceback" not in ended.err


def test_signal_that_ended_a_worker_is_named(outcomes: Mapping[str, Outcome]) -> None:
    """And the exit code is a shell's for it."""
    ended, report = outcomes["segv"]
    assert ended.code == 128 + 11
    assert report.status.reason is Reason.BUDGET_SPENT
    assert "killed by SIGSEGV" in ended.err


def test_error_that_does_not_come_back_is_forgiven(outcomes: Mapping[str, Outcome]) -> None:
    """One restart, then success; the logs of the first try are kept."""
    ended, report = outcomes["heal"]
    assert ended.code == 0
    assert report.status.phase is Phase.SUCCEEDED
    assert report.status.generation == 2
    assert "end 0 2" in ended.out
    assert "last failure" not in ended.err


def test_rank_that_is_done_early_is_no_loss(outcomes: Mapping[str, Outcome]) -> None:
    """Its exit 0 is recorded while the other still runs, and changes nothing."""
    ended, report = outcomes["early"]
    assert ended.code == 0
    assert (report.status.phase, report.status.generation) == (Phase.SUCCEEDED, 1)
    exits = [(e.rank, e.code) for result in report.results for e in result.exits]
    assert exits == [(1, 0), (0, 0)]


def test_rank_that_leaves_while_others_need_it_is_named(outcomes: Mapping[str, Outcome]) -> None:
    """And not the collective that broke on another; `--max-restarts 0` means none."""
    ended, report = outcomes["leaves"]
    assert ended.code == 1 and report.status.generation == 1
    assert report.status.reason is Reason.BUDGET_SPENT
    assert "last failure: rank 1 on " in ended.err and "exit code 0" in ended.err
    assert "rank 1 exited with 0 while other ranks still waited for it" in ended.err


def test_ranks_that_write_nothing_are_started_anew(outcomes: Mapping[str, Outcome]) -> None:
    """On both nodes, though nobody fails; a person finds where all of them stood."""
    ended, report = outcomes["silent"]
    assert ended.code == 0 and report.status.phase is Phase.SUCCEEDED
    assert [change.reason for change in report.changes] == [Reason.FIRST_WORLD, Reason.NO_OUTPUT]
    assert report.status.budget.user_error == 0
    logs = Path(ended.err.rpartition("logs: ")[2].strip())
    stacks = [path.read_text() for path in sorted((logs / "incidents").glob("gen-1.*"))]
    assert len(stacks) == 2 and all("nanosleep" in text for text in stacks)
