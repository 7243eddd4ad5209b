"""Run the tests on a real Kubernetes that CI has, if this machine can have one and there is time.

python .ci/kube.py --spent SECONDS --report REPORT.xml

All of CI is to end within an hour. On two quiet cores what comes before takes 24 minutes and this
half an hour, with a build of Kubernetes; a slower machine is slower in both. So there are three
ends: 0 when the tests passed, 1 when one or the build failed, and 0 with one sentence when the
machine cannot have the cluster or is too slow for all of it. Whatever the end, nothing of the
cluster stays.
"""

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

from time_limit import MISSING, ended, leave_out, run_tests

MOST_SPENT_S = 33 * 60.0
"""If what came before took longer, hardly a scenario of chaos would have its turn."""
END_S = 57 * 60.0
"""When this is ended at the latest, from the beginning of CI on: to clean up takes ten seconds."""
CLUSTERS = (0, 15)
"""The numbers of the clusters that tests make (tests/kube/conftest.py)."""
WHAT = "the tests on a real Kubernetes"
BY_HAND = "`make test-kube-ci` runs them by hand, and `make test-kube` all of their kind."

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
    status = ended((*_TESTBED, "check"), until_s)
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
    status = ended((*_TESTBED, "build"), until_s)
    if status == MISSING:
        return _leave_out("the sentence above says why.")
    if status is None:
        return _leave_out("this machine is too slow for it today: its build was not done in time.")
    return status or run_tests("test-kube-ci", until_s, report, what=WHAT, end_s=END_S)


def _left(number: int) -> str:
    """Return what there is of a cluster, in words."""
    command = [*_TESTBED, "left", f"--number={number}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return ", ".join(done.stdout.splitlines())


def _leave_out(why: str) -> int:
    return leave_out(WHAT, f"{why} {BY_HAND}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
