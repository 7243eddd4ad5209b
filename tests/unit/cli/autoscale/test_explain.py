"""`elasticd autoscale explain` as a person and a program call it."""

import json
from pathlib import Path

import pytest

from elasticd.cli.main import main
from elasticd.control.local_run.archive import archive, records_of
from elasticd.records.autoscale.leader import Leader
from elasticd.records.reason import Phase
from elasticd.store.memory import MemoryStore
from tests.fixtures.autoscaled import AT_S, JOB, KEYS, autoscaled, put


def test_explain_names_the_leader_and_shows_the_curve_as_a_table(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """One command tells who decides, what is held and what was measured."""
    put(store, KEYS.autoscaler_election, Leader(name="h:7", token="t", since_unix_s=AT_S))
    assert main(["autoscale", "explain", JOB]) == 0
    told = capfd.readouterr().out
    assert "the autoscaler h:7 leads since 20" in told
    assert "LAST NODE ADDS" in told and "measured, 2 windows" in told
    assert "#3 3 -> 2" in told and "held since" in told


def test_explain_says_that_nobody_leads(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """And how somebody would."""
    assert main(["autoscale", "explain", JOB]) == 0
    assert "no autoscaler leads: nothing is decided until one runs" in capfd.readouterr().out


def test_explain_for_programs_is_one_document(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """`--last` holds for it too."""
    assert main(["autoscale", "explain", JOB, "--json", "--last", "1"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["job"] == JOB and len(told["decisions"]) == 1 and told["leader"] is None


def test_job_that_is_over_is_explained(
    over: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """From its records."""
    assert main(["autoscale", "explain", JOB]) == 0
    told = capfd.readouterr().out
    assert "job digits: succeeded" in told and "#2 2 -> 3" in told


def test_archive_of_a_local_run_has_what_explain_needs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A laptop's run keeps its policy, curve and decisions in its file."""
    records = records_of(autoscaled(phase=Phase.SUCCEEDED), KEYS, JOB).values()
    (tmp_path / JOB).mkdir()
    archive(records, tmp_path / JOB / "records.json")
    assert main(["autoscale", "explain", "--log-dir", str(tmp_path)]) == 0
    told = capfd.readouterr().out
    assert "policy set by ada@host" in told and "#3 3 -> 2" in told


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((JOB[:-1],), "There is no job 'digit': did you mean digits?"),
        ((JOB, "--last", "-1"), "-1 is not in the range x>=0"),
        ((JOB, "--last", "few"), "'few' is not a valid integer"),
    ],
)
def test_wrong_input_is_one_sentence(
    store: MemoryStore, argv: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """With what to do."""
    assert main(["autoscale", "explain", *argv]) == 2
    told = capfd.readouterr()
    assert told.out == "" and said in told.err and told.err.count("\n") == 1


def test_without_any_run_it_says_where_to_look(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither a cluster nor a folder of runs."""
    assert main(["autoscale", "explain", "--log-dir", str(tmp_path)]) == 2
    assert "There is no local run" in capfd.readouterr().err
