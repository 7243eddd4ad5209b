"""Fail if a test was skipped: on the machine that decides, every test has to run.

python .ci/no_skips.py REPORT.xml ...   (what `pytest --junit-xml` wrote)
"""

import sys
import xml.etree.ElementTree as ET  # our own file, of a moment ago


def main(paths: list[str]) -> int:
    cases = [case for path in paths for case in ET.parse(path).getroot().iter("testcase")]  # noqa: S314
    skipped = [(case, skip) for case in cases for skip in case.iter("skipped")]
    for case, skip in skipped:
        why = " ".join((skip.get("message") or "no reason given").split())
        sys.stderr.write(f"skipped: {case.get('classname')}.{case.get('name')}: {why}\n")
    if not cases:
        sys.stderr.write("no test ran\n")
    sys.stdout.write(f"{len(cases)} tests, {len(skipped)} skipped\n")
    return 1 if skipped or not cases else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
