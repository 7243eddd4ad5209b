"""When CI runs the tests on a real Kubernetes, when it does not, and that no cluster stays."""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
FAILED = '<testsuite><testcase name="a"><failure message="x"/></testcase></testsuite>'
PASSED = '<testsuite><testcase name="a"/><testcase/></testsuite>'
TESTBED = """
import pathlib, sys, time
do = sys.argv[1]
open("calls", "a").write(" ".join(sys.argv[1:]) + "\\n")
path = pathlib.Path(do + "".join(sys.argv[2:]))
exec(path.read_text() if path.exists() else "")
"""
"""The testbed of a machine for which the test says, by a file for each command, what happens."""

NOTES_CALL = "import sys\nopen('calls', 'a').write(f'make {sys.argv[1]}\\n')\n"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ci_kube", ROOT / ".ci" / "kube.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A folder with a testbed and a make that write down their calls."""

    folder: Path
    script: ModuleType

    def does(self, command: str, code: str) -> None:
        """Have the testbed run this at a command, such as `build`."""
        (self.folder / command).write_text(code)

    def makes(self, code: str) -> None:
        """Have `make` run this, in Python."""
        path = self.folder / "bin" / "make"
        path.write_text(f"#!{sys.executable}\n{NOTES_CALL}{code}")
        path.chmod(0o755)

    def run(self, *, spent_min: float = 24.0) -> int:
        words = ["--spent", f"{60 * spent_min}", "--report", str(self.report)]
        return int(self.script.main(words))

    @property
    def report(self) -> Path:
        return self.folder / "report.xml"

    @property
    def calls(self) -> Sequence[str]:
        """What was called, but for looks at what is left of a cluster."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not line.startswith("left")]


def end_time_of(word: str, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the time be over for a command as soon as it has written the file `ready`."""

    class Popen(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if word in self.args and timeout is not None and timeout > 100.0:  # type: ignore[operator]
                while not (machine.folder / "ready").exists():
                    time.sleep(0.01)
                raise subprocess.TimeoutExpired(word, timeout)
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Popen)


DOWN = ["down --number=0", "down --number=15"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    package = tmp_path / "tests" / "kube" / "testbed"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    (package / "__main__.py").write_text(TESTBED)
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("PYTEST_ARGS", raising=False)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # This process keeps its own.
    machine = Machine(folder=tmp_path, script=script())
    machine.makes("")
    return machine


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
    monkeypatch.setattr(machine.script, "CLEAN_UP_S", 0.1)
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
