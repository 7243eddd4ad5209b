"""The command line that all benchmarks share."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.report import Result, dump, show

__all__ = ["Call", "read_call", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    trials: int
    json: Path | None
    """Where to write the result."""


def read_call(doc: str | None, trials: int) -> Call:
    """Read `[--trials N] [--json FILE]`; the number of trials is what is given here, else N."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=trials, metavar="N", help=f"[{trials}]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too")
    given = parser.parse_args()
    if given.trials < 1:
        parser.error("--trials must be 1 or more")
    return Call(trials=given.trials, json=given.json)


def run(doc: str | None, measure: Callable[[int], Result], trials: int) -> None:
    """Be a benchmark's program: read the call, measure, show, and write where that is wished."""
    call = read_call(doc, trials)
    result = measure(call.trials)
    show(result)
    if call.json is not None:
        dump([result], call.json)
