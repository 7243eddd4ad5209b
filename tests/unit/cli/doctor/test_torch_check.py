"""How an interpreter and its torch are judged."""

import sys
from pathlib import Path

import pytest

from elasticd.cli.doctor import process_group_check
from elasticd.cli.doctor.finding import Finding, Verdict
from elasticd.cli.doctor.process_group_check import check_process_group
from elasticd.cli.doctor.torch_check import TorchReport, findings_of, last_line, read_torch
from elasticd.cli.doctor.two_ranks import TOOK
from tests.fixtures.patience import patience_s


def report(**changes: object) -> TorchReport:
    found: dict[str, object] = {
        "python": "3.12.1", "path": "/venv/bin/python", "torch": "2.13.0+cu128", "import_s": 2.0,
        "gpus": 2, "cuda": "12.8", "gloo": True, "nccl": True,
    }  # fmt: skip
    return TorchReport(**{**found, **changes})  # type: ignore[arg-type]


def test_torch_that_sees_all_gpus_is_good() -> None:
    found = list(findings_of(report(), gpus=2))
    assert {each.verdict for each in found} == {Verdict.OK}
    assert "with gloo and nccl" in found[0].found and "2 GPUs" in found[1].found


@pytest.mark.parametrize(
    ("changes", "gpus", "found", "advice"),
    [
        ({"failure": "ModuleNotFoundError: torch"}, 0, "cannot import torch", "pip install"),
        ({"torch": "2.8.1"}, 2, "supports 2.9 and later", "--upgrade"),
        ({"python": "3.10.4"}, 2, "older than 3.11", "newer Python"),
        ({"gloo": False}, 2, "without Gloo", "pip"),
        ({"nccl": False}, 2, "without NCCL", "pip"),
        ({"gpus": 0}, 2, "torch can use none of them", "built for this driver"),
        ({"gpus": 1}, 2, "torch can use 1 of them", "nvidia-smi"),
        ({"gpus": 0, "cuda": "", "nccl": False}, 1, "shows 1 GPU,", "this one is for CPUs"),
    ],
)
def test_what_a_run_would_fail_by_is_a_problem(
    changes: dict[str, object], gpus: int, found: str, advice: str
) -> None:
    problems = [e for e in findings_of(report(**changes), gpus) if e.verdict is Verdict.PROBLEM]
    assert len(problems) == 1
    assert found in problems[0].found and advice in problems[0].advice


def test_machine_without_gpus_is_no_problem() -> None:
    (found,) = findings_of(report(gpus=0, cuda="", nccl=False, torch="2.13.0+cpu"), gpus=0)
    assert found.verdict is Verdict.OK and "for CPUs" in found.found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("exec sleep 60", "had not imported torch after 0 s"),
        ("echo Segmentation fault >&2; exit 139", "ended with 139: Segmentation fault"),
        ('echo \'{"of": "another"}\'', "ended with 0: no word"),
        ("printf 'no \\377 text\\n' >&2; exit 1", "ended with 1: no \ufffd text"),
    ],
)
def test_interpreter_that_does_not_answer_is_a_problem(
    body: str, found: str, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o755)
    answer = read_torch(str(python), limit_s=0.2 if "sleep" in body else patience_s(60.0))
    assert isinstance(answer, Finding)
    assert answer.verdict is Verdict.PROBLEM and found in answer.found


def test_interpreters_that_are_asked_do_not_get_the_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They import torch for a minute, in an environment that others of the user can read."""
    monkeypatch.setenv("ELASTICD_ETCD_PASSWORD", "canary")
    monkeypatch.setenv("ELASTICD_ETCD_PASSWORD_FILE", "/canary")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nenv >> {tmp_path}/environment\nexit 1\n")
    python.chmod(0o755)
    read_torch(str(python), limit_s=patience_s(60.0))
    list(check_process_group(str(python), "gloo", "127.0.0.1"))
    told = (tmp_path / "environment").read_text()
    assert told.count("\nPATH=") + told.startswith("PATH=") == 3, "all three were started"
    assert "canary" not in told


def test_figure_is_found_among_what_libraries_print(tmp_path: Path) -> None:
    """NCCL_DEBUG=INFO, which doctor advises, prints to stdout, also as the process ends."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho NCCL INFO\necho {TOOK} 0.5\necho NCCL INFO 1 destroyed\n")
    python.chmod(0o755)
    (finding,) = check_process_group(str(python), "nccl", "127.0.0.1")
    assert finding.verdict is Verdict.OK and "0.5" in finding.found


@pytest.mark.parametrize("is_asked", [True, False])
def test_what_nccl_says_is_shown_where_it_was_asked_for(
    is_asked: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was caught and thrown away, though the sentence says to look at it."""
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    if is_asked:
        monkeypatch.setenv("NCCL_DEBUG", "INFO")
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho NCCL WARN no path\nexit 1\n")
    python.chmod(0o755)
    (finding,) = check_process_group(str(python), "nccl", "127.0.0.1")
    assert finding.verdict is Verdict.PROBLEM
    assert capsys.readouterr().err.count("NCCL WARN no path") == (2 if is_asked else 0)


def test_interpreter_that_cannot_be_started_is_a_problem(tmp_path: Path) -> None:
    answer = read_torch(str(tmp_path))
    assert isinstance(answer, Finding) and "cannot be started" in answer.found


def test_interpreter_without_torch_says_so(tmp_path: Path) -> None:
    """`-I -S` hides what is installed."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    answer = read_torch(str(python), patience_s(60.0))
    assert isinstance(answer, TorchReport)
    assert "No module named 'torch'" in answer.failure


def test_last_line_of_a_traceback_is_its_error() -> None:
    assert last_line("Traceback:\n  File\nOSError: no\n\n") == "OSError: no"
    assert last_line("\n") == "no word"


@pytest.mark.parametrize("stream", ["1", "2"])
def test_rank_that_prints_much_does_not_stand_still(stream: str, tmp_path: Path) -> None:
    """The pipe of the second rank was read only when the first had ended, which waited for it."""
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\n[ $2 = 1 ] && head -c 300000 /dev/zero >&{stream}\n"
        f"touch {tmp_path}/$2\nwhile [ ! -e {tmp_path}/1 ]; do sleep 0.1; done\n"
        f"echo\necho {TOOK} 0.5\n"
    )
    python.chmod(0o755)
    (finding,) = check_process_group(str(python), "nccl", "127.0.0.1")
    assert finding.verdict is Verdict.OK and "0.5" in finding.found


def test_rank_that_is_not_done_in_time_is_shown_with_what_it_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if it is no text: a library may print bytes."""
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setattr(process_group_check, "LIMIT_S", 1.0)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nprintf 'NCCL WARN \\377\\n'\nexec sleep 60\n")
    python.chmod(0o755)
    (finding,) = check_process_group(str(python), "nccl", "127.0.0.1")
    assert finding.verdict is Verdict.PROBLEM and "not done after 1 s" in finding.found
    assert capsys.readouterr().err == 2 * "NCCL WARN \ufffd\n"
