"""What the engines of tests have left on this machine: python -m tests.containers left.

It prints what there is of them, and ends with 1 if that is anything.
"""

import argparse
import sys

from tests.containers.engine import left


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.containers", description=__doc__)
    parser.add_argument("do", choices=("left",))
    parser.parse_args(words)
    found = left()
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
