"""When CI runs the tests of the images and of Docker, and when it does not."""

from pathlib import Path

import pytest

from tests.fixtures.ci_machine import FAILED, PASSED, Machine, ci_machine, end_time_of


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return ci_machine("containers", tmp_path, monkeypatch)


def test_tests_run_where_the_machine_can_have_namespaces(machine: Machine) -> None:
    assert machine.run(spent_min=49) == 0
    assert machine.calls == ["check", "make test-docker"]


def test_machine_that_had_no_time_left_leaves_them_out(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    assert machine.run(spent_min=54) == 0
    assert machine.calls == []
    said = capfd.readouterr().out
    assert "too slow" in said and "54 minutes" in said and "`make test-docker`" in said


def test_machine_that_cannot_have_namespaces_leaves_them_out(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    machine.does("check", "print('no right to mount', file=sys.stderr); sys.exit(3)")
    assert machine.run() == 0
    assert machine.calls == ["check"]
    printed = capfd.readouterr()
    assert "no right to mount" in printed.err and "left out" in printed.out


@pytest.mark.parametrize("failing", ["check", "make"])
def test_failure_is_a_failure(failing: str, machine: Machine) -> None:
    if failing == "check":
        machine.does("check", "sys.exit(1)")
    else:
        machine.makes("sys.exit(2)")
    assert machine.run() > 0


@pytest.mark.parametrize(("report", "status"), [(PASSED, 0), (FAILED, 1)])
def test_end_of_the_time_hides_no_failure(
    report: str,
    status: int,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
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
    assert ("58 minutes after the beginning" in capfd.readouterr().out) == (status == 0)


def test_trace_of_an_engine_is_a_failure(machine: Machine) -> None:
    machine.does("left", "print('process 7')")
    with pytest.raises(SystemExit, match="process 7"):
        machine.run()
