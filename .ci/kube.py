"""Run the tests on a real Kubernetes that CI has, if this machine can have one and there is time.

python .ci/kube.py --spent SECONDS --report REPORT.xml

All of CI is to end within an hour. On two quiet cores what comes before takes 24 minutes and this
half an hour, with a build of Kubernetes; a slower machine is slower in both. So there are three
ends: 0 when the tests passed, 1 when one or the build failed, and 0 with one sentence when the
machine cannot have the cluster or is too slow for all of it. Whatever the end, nothing of the
cluster stays.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET  # our own file, of a moment ago
from pathlib import Path

MOST_SPENT_S = 33 * 60.0
"""If what came before took longer, hardly a scenario of chaos would have its turn."""
END_S = 57 * 60.0
"""When this is ended at the latest, from the beginning of CI on: to clean up takes ten seconds."""
CLEAN_UP_S = 90.0
"""So long have tests that were interrupted to take the cluster down."""
CLUSTERS = (0, 15)
"""The numbers of the clusters that tests make (tests/kube/conftest.py)."""
MISSING = 3
"""How tests.kube.testbed ends where a machine cannot have the cluster; its sentence is printed."""
BY_HAND = (
    "`make test-kube-ci` runs it by hand, and `make test-kube` all tests on a real Kubernetes."
)

_FAILED = ("failure", "error")
_TESTBED = (sys.executable, "-m", "tests.kube.testbed")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python .ci/kube.py", description=__doc__)
    parser.add_argument("--spent", type=float, required=True, help="seconds that CI has taken")
    parser.add_argument("--report", type=Path, required=True, help="where pytest writes its report")
    asked = parser.parse_args(words)
    if asked.spent > MOST_SPENT_S:
        return _leave_out(
            f"this machine is too slow for it today: what comes before took {asked.spent / 60:.0f} "
            f"minutes, and at most {MOST_SPENT_S / 60:.0f} leave time within an hour."
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # Leaves no cluster.
    until_s = time.monotonic() + END_S - asked.spent
    status = _ended((*_TESTBED, "check"), until_s)
    if status == MISSING:
        return _leave_out("the sentence above says why.")
    # A cluster that somebody has up is used as it is, and left running.
    ours = [number for number in CLUSTERS if not _left(number)]
    try:
        return status or _run(until_s, asked.report)
    finally:
        for number in ours:
            subprocess.run([*_TESTBED, "down", f"--number={number}"], check=True)
            if left := _left(number):
                raise SystemExit(f".ci/kube.py: the cluster has left {left}")


def _run(until_s: float, report: Path) -> int:
    """Build the testbed and run the tests; return what CI is to end with."""
    status = _ended((*_TESTBED, "build"), until_s)
    if status == MISSING:
        return _leave_out("the sentence above says why.")
    if status == 0:
        args = f"PYTEST_ARGS=--junit-xml={report} {os.environ.get('PYTEST_ARGS', '')}"
        status = _ended(("make", "test-kube-ci", args), until_s)
    if status is None and not has_failure(report):
        return _leave_out(
            f"this machine is too slow for it today: it was ended {END_S / 60:.0f} minutes after "
            f"the beginning of CI; until then {passed(report)} tests had passed, and none failed.",
            how="were not run to their end",
        )
    return 1 if status is None else status


def has_failure(report: Path) -> bool:
    """Return whether a test failed; False where the tests came not far enough for a report."""
    return any(each.find(kind) is not None for each in _cases(report) for kind in _FAILED)


def passed(report: Path) -> int:
    """Return how many tests passed; 0 where there is no report."""
    return sum(not any(each.find(kind) is not None for kind in _FAILED) for each in _cases(report))


def _cases(report: Path) -> list[ET.Element]:
    if not report.exists():
        return []
    root = ET.parse(report).getroot()  # noqa: S314
    # One that was interrupted has no name.
    return [each for each in root.iter("testcase") if each.get("name")]


def _ended(command: tuple[str, ...], until_s: float) -> int | None:
    """Return how a command ended; None if it had to be ended since the time was over.

    It is interrupted as by Ctrl-C, so that tests take down what they have up, and killed if that
    takes too long. All that it starts is in its process group, but for the clusters' own programs.
    """
    with subprocess.Popen(command, process_group=0, stdin=subprocess.DEVNULL) as process:
        try:
            return process.wait(max(until_s - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(CLEAN_UP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            return None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def _left(number: int) -> str:
    """Return what there is of a cluster, in words."""
    command = [*_TESTBED, "left", f"--number={number}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return ", ".join(done.stdout.splitlines())


def _leave_out(why: str, *, how: str = "are left out") -> int:
    sys.stdout.write(f".ci/run: the tests on a real Kubernetes {how}: {why} {BY_HAND}\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
