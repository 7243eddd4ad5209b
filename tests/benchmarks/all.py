"""All benchmarks, one after the other; `make bench`. Writes one JSON and docs/benchmarks.md.

Each runs in a process of its own. One that fails is named, the others go on, and the exit code is
1; a target that is not met is no failure. `--quick` is a try of the code: small counts, and the
tables say that they are preliminary.
"""

import argparse
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks import machine, write_docs
from tests.benchmarks.bench import ROOT
from tests.benchmarks.report import Result, dump, load, show

__all__ = ["main"]

QUICK = {
    "recovery": 5,
    "node_loss": 1,
    "agent_cost": 1,
    "scrape": 50,
    "dashboard": 3,
    "event_files": 200,
    "growth": 1,
    "inprocess_recovery": 4,
    "planned_leave": 1,
    "second_job": 2,
    "spare_handover": 2,
    "autoscaler_reaction": 2,
    "hang": 2,
    "late_node": 2,
    "autoscaler_evaluation": 20,
    "autoscaler_simulator": 8,
    "overhead": 500,
    "overhead_long_step": 100,
    "storm": 20,
    "healing": 2,
    "loading": 3,
    "snapshot_stall": 2,
    "snapshot_overlap": 2,
    "snapshot_cost": 2,
    "every_step": 1,
    "durable_save": 2,
    "object_save": 2,
    "restore": 2,
}
BENCHMARKS = tuple(QUICK)
LIMIT_S = 3600.0
END_S = 30.0
DEFAULT_JSON = Path(__file__).with_name("figures.json")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, default=DEFAULT_JSON, metavar="FILE")
    parser.add_argument("--only", default=",".join(BENCHMARKS), metavar="NAME,...")
    parser.add_argument("--trials", default="", metavar="NAME=N,...", help="other counts")
    parser.add_argument("--keep", action="store_true", help="keep the others' earlier results")
    parser.add_argument("--quick", action="store_true", help="small counts, preliminary")
    parser.add_argument("--preliminary", action="store_true", help="mark the tables as such")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/benchmarks.md alone")
    given = parser.parse_args()
    names = given.only.split(",")
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        parser.error(f"{', '.join(unknown)}: no such benchmark; there are {', '.join(BENCHMARKS)}")
    counts = {**(QUICK if given.quick else {}), **_counts(given.trials)}
    about = machine.describe()
    began_s = time.monotonic()
    results, failed = [], []
    for name in names:
        result = _run(name, counts.get(name), f"{datetime.now(UTC):%Y-%m-%d}, {about['cores']}")
        if result is None:
            failed.append(name)
        else:
            results.append(result)
    if given.keep and given.json.exists():
        results = merged(load(given.json)[0], results)
    dump(
        results,
        given.json,
        machine=about,
        is_preliminary=given.quick or given.preliminary,
        **({} if given.keep else {"took_s": round(time.monotonic() - began_s)}),
        failed=failed,
    )
    print(f"\n{'=' * 80}\nAll of it, in {given.json}:")
    for result in results:
        show(result)
    if not given.no_docs:
        write_docs.write(given.json)
    for name in failed:
        print(f"The benchmark {name} failed: its error is above.", file=sys.stderr)
    return 1 if failed else 0


def merged(earlier: Sequence[Result], results: Sequence[Result]) -> list[Result]:
    """Return the results, and of the benchmarks that have none now the earlier ones; in order."""
    found = {result.name: result for result in (*earlier, *results)}
    return [found[name] for name in BENCHMARKS if name in found]


def _counts(text: str) -> dict[str, int]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: int(count) for name, _, count in pairs}


def _run(name: str, trials: int | None, measured: str) -> Result | None:
    """Run one in a process of its own; None if it failed or took too long."""
    print(f"\n## {name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "result.json")
        argv = [sys.executable, "-m", f"tests.benchmarks.{name}", "--json", str(out)]
        if trials is not None:
            argv += ["--trials", str(trials)]
        process = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        try:
            code = process.wait(LIMIT_S)
        except BaseException as exc:  # Also Ctrl-C: it has processes to end before it goes.
            process.send_signal(signal.SIGTERM)
            process.wait(END_S)
            if not isinstance(exc, subprocess.TimeoutExpired):
                raise
            return None
        if code != 0 or not out.exists():
            return None
        return dataclasses.replace(load(out)[0][0], measured=measured)


if __name__ == "__main__":
    sys.exit(main())
