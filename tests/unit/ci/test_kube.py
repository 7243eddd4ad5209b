"""When CI runs the tests on a real Kubernetes, when it does not, and that no cluster stays."""

from pathlib import Path

import pytest

from tests.fixtures.ci_machine import FAILED, PASSED, Machine, ci_machine, end_time_of

DOWN = ["down --number=0", "down --number=15"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return ci_machine("kube", tmp_path, monkeypatch)


def test_tests_run_after_a_build_and_the_clusters_are_taken_down(machine: Machine) -> None:
    machine.makes("open('words', 'w').write(sys.argv[2])")
    assert machine.run() == 0
    assert machine.calls == ["check", "build", "make test-kube-ci", *DOWN]
    words = (machine.folder / "words").read_text()
    assert words.strip() == f"PYTEST_ARGS=--junit-xml={machine.report}"


def test_slow_machine_leaves_it_out_with_a_sentence(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    assert machine.run(spent_min=33.5) == 0
    assert machine.calls == []
    said = capfd.readouterr().out
    assert "too slow" in said and "34 minutes" in said and "`make test-kube-ci`" in said


@pytest.mark.parametrize("command", ["check", "build"])
def test_machine_that_cannot_have_a_cluster_leaves_it_out(
    command: str, machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    machine.does(command, "print('no right to mount', file=sys.stderr); sys.exit(3)")
    assert machine.run() == 0
    assert "make test-kube-ci" not in machine.calls
    printed = capfd.readouterr()
    assert "no right to mount" in printed.err and "left out" in printed.out


@pytest.mark.parametrize("command", ["check", "build"])
def test_failure_of_ours_before_the_tests_is_a_failure(command: str, machine: Machine) -> None:
    machine.does(command, "sys.exit(1)")
    assert machine.run() == 1
    assert "make test-kube-ci" not in machine.calls


def test_failed_test_is_a_failure_and_the_clusters_are_taken_down(machine: Machine) -> None:
    machine.makes("sys.exit(2)")
    assert machine.run() == 2
    assert machine.calls[-2:] == DOWN


@pytest.mark.parametrize(("report", "status"), [(PASSED, 0), (FAILED, 1)])
def test_end_of_the_time_interrupts_the_tests_and_hides_no_failure(
    report: str,
    status: int,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """They are interrupted as by Ctrl-C, and write what they have found by then."""
    machine.makes(
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try:\n"
        "  open('ready', 'w')\n"
        "  time.sleep(1000)\n"
        f"except KeyboardInterrupt: open('report.xml', 'w').write('''{report}''')\n"
    )
    end_time_of("make", machine, monkeypatch)
    assert machine.run() == status
    assert machine.report.read_text() == report
    said = "too slow for it today: it was ended 57 minutes after the beginning of CI; until then 1 "
    assert (said in capfd.readouterr().out) == (status == 0)
    assert machine.calls[-2:] == DOWN


def test_tests_that_do_not_end_when_interrupted_are_killed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = "import signal\nsignal.signal(2, signal.SIG_IGN)\nopen('ready', 'w')\ntime.sleep(1000)"
    machine.does("build", deaf)
    end_time_of("build", machine, monkeypatch)
    monkeypatch.setattr(machine.time_limit, "CLEAN_UP_S", 0.1)
    assert machine.run() == 0
    assert machine.calls == ["check", "build", *DOWN]


def test_cluster_that_somebody_has_up_stays(machine: Machine) -> None:
    machine.does("left--number=0", "print('namespace ekube0')")
    assert machine.run() == 0
    assert machine.calls[-2:] == ["make test-kube-ci", "down --number=15"]


def test_trace_of_a_cluster_is_a_failure(machine: Machine) -> None:
    machine.makes("open('left--number=15', 'w').write('print(\"mount /x\")')")
    with pytest.raises(SystemExit, match="mount /x"):
        machine.run()
