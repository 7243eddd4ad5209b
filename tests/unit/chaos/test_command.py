"""`python -m chaos`: what it prints, and how it refuses."""

from pathlib import Path

import pytest

from chaos.__main__ import main


def test_a_dry_run_prints_the_same_schedule_twice(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for _ in range(2):
        assert main(["run", "storm", "--seed", "4", "--dry-run"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert len(printed[0].splitlines()) == 40


def test_a_dry_run_of_a_soak_has_as_many_lines_as_faults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["soak", "--faults", "123", "--no-network", "--dry-run"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 123


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "no-such-scenario"],
        ["run", "storm", "--seed", "x"],
        ["run", "storm", "--report", "/no/such/folder/report.json"],
        ["soak", "--faults", "0"],
        ["soak", "--nodes", "1"],
        ["soak", "--workers", "0"],
        ["judge", "/no/such/folder"],
        ["dance"],
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("chaos: ") and len(said.err.splitlines()) == 1


def test_a_folder_without_a_history_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.json").write_text("{}")
    assert main(["judge", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
