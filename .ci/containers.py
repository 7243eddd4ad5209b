"""Run the tests of the images, of Compose and of a swarm, if this machine can and there is time.

python .ci/containers.py --spent SECONDS --report REPORT.xml

They need the rights that a cluster on one machine needs, and take seven minutes on two quiet cores.
They end as those on a real Kubernetes do (kube.py), and come after them: what is missing on a slow
machine is this.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from time_limit import MISSING, ended, leave_out, run_tests

LEAST_S = 5 * 60.0
"""With less time left it would not come to its second test."""
END_S = 58 * 60.0
"""When this is ended at the latest, from the beginning of CI on; cleaning takes half a minute."""
WHAT = "the tests of the images and of Docker"
BY_HAND = "`make test-docker` runs them by hand."

_CHECK = (sys.executable, "-m", "tests.kube.testbed", "check")
_LEFT = (sys.executable, "-m", "tests.containers", "left")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python .ci/containers.py", description=__doc__)
    parser.add_argument("--spent", type=float, required=True, help="seconds that CI has taken")
    parser.add_argument("--report", type=Path, required=True, help="where pytest writes its report")
    asked = parser.parse_args(words)
    if asked.spent > END_S - LEAST_S:
        return leave_out(
            WHAT,
            f"this machine is too slow for it today: what comes before took {asked.spent / 60:.0f} "
            f"minutes, and at most {(END_S - LEAST_S) / 60:.0f} leave time within an hour. "
            f"{BY_HAND}",
        )
    until_s = time.monotonic() + END_S - asked.spent
    status = ended(_CHECK, until_s)
    if status == MISSING:
        return leave_out(WHAT, f"the sentence above says why. {BY_HAND}")
    status = status or run_tests("test-docker", until_s, asked.report, what=WHAT, end_s=END_S)
    done = subprocess.run(_LEFT, stdout=subprocess.PIPE, text=True, check=False)
    if left := ", ".join(done.stdout.splitlines()):
        raise SystemExit(f".ci/containers.py: the engines have left {left}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
