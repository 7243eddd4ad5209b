"""Ends what CI runs before its hour is over, and says what of it is missing then."""

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET  # our own file, of a moment ago
from pathlib import Path

__all__ = ["MISSING", "ended", "leave_out", "run_tests"]

MISSING = 3
"""How `python -m tests.kube.testbed` ends where the machine cannot have the cluster."""
CLEAN_UP_S = 90.0
"""So long have tests that were interrupted to take down what they have up."""

_FAILED = ("failure", "error")


def ended(command: tuple[str, ...], until_s: float) -> int | None:
    """Return how a command ended; None if it had to be ended since the time was over.

    It is interrupted as by Ctrl-C, so that tests take down what they have up, and killed if that
    takes too long. All that it starts is in its process group, but for what tests keep apart.
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


def run_tests(target: str, until_s: float, report: Path, *, what: str, end_s: float) -> int:
    """Run a target of make that runs tests; return what CI is to end with.

    `end_s`: when it is ended at the latest, from the beginning of CI on.
    """
    args = f"PYTEST_ARGS=--junit-xml={report} {os.environ.get('PYTEST_ARGS', '')}"
    status = ended(("make", target, args), until_s)
    if status is None and not has_failure(report):
        return leave_out(
            what,
            f"this machine is too slow for it today: it was ended {end_s / 60:.0f} minutes after "
            f"the beginning of CI; until then {passed(report)} tests had passed, and none failed. "
            f"`make {target}` runs them by hand.",
            how="were not run to their end",
        )
    return 1 if status is None else status


def has_failure(report: Path) -> bool:
    """Return whether a test failed; False where the tests came not far enough for a report."""
    return any(each.find(kind) is not None for each in _cases(report) for kind in _FAILED)


def passed(report: Path) -> int:
    """Return how many tests passed; 0 where there is no report."""
    return sum(not any(each.find(kind) is not None for kind in _FAILED) for each in _cases(report))


def leave_out(what: str, why: str, *, how: str = "are left out") -> int:
    """Say what CI does without; return what it is to end with for that."""
    sys.stdout.write(f".ci/run: {what} {how}: {why}\n")
    sys.stdout.flush()
    return 0


def _cases(report: Path) -> list[ET.Element]:
    if not report.exists():
        return []
    root = ET.parse(report).getroot()  # noqa: S314
    # One that was interrupted has no name.
    return [each for each in root.iter("testcase") if each.get("name")]
