"""`make kube-up`, `make kube-down`: python -m tests.kube.testbed check | build | up | down | left.

`check` sees whether this machine can have a cluster, and installs what is missing. `left` prints
what there is of a cluster, and ends with 1 if that is anything.
"""

import argparse
import sys
import time

from tests.kube.testbed.cluster import Cluster
from tests.kube.testbed.package import BuildFailed, Missing

FAILED, MISSING = 1, 3
"""Exit codes: something of ours failed; this machine cannot have the cluster."""


def main(words: list[str]) -> int:
    """Do what was asked for; a sentence says what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.kube.testbed", description=__doc__)
    parser.add_argument("do", choices=("check", "build", "up", "down", "left"))
    parser.add_argument("--number", type=int, default=0, help="which cluster, 0 to 15")
    asked = parser.parse_args(words)
    if not 0 <= asked.number <= 15:
        parser.error(f"--number is {asked.number}, and a cluster's number is from 0 to 15")
    began_s = time.monotonic()
    cluster = Cluster(asked.number)
    try:
        match asked.do:
            case "check":
                cluster.check()
            case "build":
                cluster.prepare()
            case "up":
                cluster.up()
                print(f"export KUBECONFIG={cluster.api.kubeconfig}")
            case "down":
                cluster.down()
            case "left":
                left = cluster.left()
                print(*left, sep="\n", end="\n" if left else "")
                return FAILED if left else 0
    except Missing as error:
        print(error, file=sys.stderr)
        return MISSING
    except BuildFailed as error:
        print(error, file=sys.stderr)
        return FAILED
    took_s = time.monotonic() - began_s
    print(f"testbed: {asked.do} took {took_s:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
