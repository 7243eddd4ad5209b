"""Benchmarks of two checkouts in turns: is what we have slower than what stood?

`python -m tests.benchmarks.before_after CHECKOUT [NAME=TRIALS ...]` with a virtual environment
`.venv` in each of the two. A benchmark runs in the other checkout, here, here, and there again, so
a machine that gets slower while it runs hits both alike; the samples of all turns are one series.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.bench import ROOT
from tests.benchmarks.report import Result, load, percentile, table

__all__ = ["main"]

DEFAULT = {
    "recovery": 20,
    "inprocess_recovery": 40,
    "overhead": 2000,
    "snapshot_stall": 6,
    "restore": 6,
}
"""What every change must leave as fast as it was, with the trials of one turn."""
LIMIT_S = 1800.0
HEADS = ("series", "before: n", "p50", "p99", "after: n", "p50", "p99", "after / before, p50")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path, metavar="CHECKOUT", help="the tree that stood before")
    parser.add_argument("counts", nargs="*", metavar="NAME=TRIALS", help="which benchmarks")
    parser.add_argument("--rounds", type=int, default=1, help="of four turns each")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    before = given.before.resolve()
    counts = dict(_count(text) for text in given.counts) or DEFAULT
    failed = 0
    for name, trials in counts.items():
        found: dict[Path, list[Result]] = {before: [], ROOT: []}
        for tree in (before, ROOT, ROOT, before) * given.rounds:
            result = _run(tree, name, trials)
            if result is None:
                failed += 1
            else:
                found[tree].append(result)
        rows = compared(found[before], found[ROOT])
        print(f"\n## {name}, {2 * given.rounds} turns of {trials}\n")
        print(table(HEADS, rows, markdown=given.markdown), flush=True)
    return 1 if failed else 0


def compared(before: Sequence[Result], after: Sequence[Result]) -> list[tuple[str, ...]]:
    """Return a row for each series that both sides have, in the order of the newer side."""
    old, new = _pooled(before), _pooled(after)
    rows = []
    for name in new:
        if name not in old:
            continue
        unit, *sides = new[name][0], old[name][1], new[name][1]
        cells = [
            cell
            for values in sides
            for cell in (
                str(len(values)),
                *(f"{percentile(values, share):.4g} {unit}".strip() for share in (0.5, 0.99)),
            )
        ]
        base, own = (percentile(values, 0.5) for values in sides)
        rows.append((name, *cells, f"{own / base:.2f}" if base > 0.0 and all(sides) else ""))
    return rows


def _pooled(results: Sequence[Result]) -> dict[str, tuple[str, list[float]]]:
    found: dict[str, tuple[str, list[float]]] = {}
    for result in results:
        for series in result.series:
            found.setdefault(series.name, (series.unit, []))[1].extend(series.values)
    return found


def _count(text: str) -> tuple[str, int]:
    name, _, trials = text.partition("=")
    if name not in DEFAULT and not Path(__file__).with_name(f"{name}.py").exists():
        raise SystemExit(f"{name} is no benchmark; there are {', '.join(DEFAULT)} and more.")
    return name, int(trials) if trials else DEFAULT.get(name, 5)


def _run(tree: Path, name: str, trials: int) -> Result | None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "result.json")
        argv = [str(tree / ".venv/bin/python"), "-m", f"tests.benchmarks.{name}"]
        argv += ["--json", str(out), "--trials", str(trials)]
        done = subprocess.run(
            argv, cwd=tree, timeout=LIMIT_S, capture_output=True, text=True, check=False
        )
        if done.returncode != 0 or not out.exists():
            print(f"{name} failed in {tree}:\n{done.stderr[-2000:]}", file=sys.stderr)
            return None
        return load(out)[0][0]


if __name__ == "__main__":
    sys.exit(main())
