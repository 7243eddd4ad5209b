"""Prints where the minutes of a test run went, from pytest's JUnit reports.

python .ci/durations.py REPORT.xml ...

Tests run in several processes at a time, so all of them take more seconds than the run.
"""

import sys
import xml.etree.ElementTree as ET  # our own file, of a moment ago
from collections import Counter

FOLDERS, TESTS = 12, 20


def main(paths: list[str]) -> None:
    folders: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for path in paths:
        for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314
            took_ms = round(1000 * float(case.get("time") or 0.0))
            parts = (case.get("classname") or "").split(".")
            folders["/".join(each for each in parts[1:3] if not each.startswith("test_"))] += (
                took_ms
            )
            tests[f"{'/'.join(parts[1:])}::{case.get('name')}"] += took_ms
    sys.stdout.write(f"{sum(folders.values()) / 1000:.0f} s of tests, of which:\n")
    for name, took_ms in [*folders.most_common(FOLDERS), ("", 0), *tests.most_common(TESTS)]:
        sys.stdout.write(f"{took_ms / 1000:7.0f} s  {name[:110]}\n" if name else "by test:\n")


if __name__ == "__main__":
    main(sys.argv[1:])
