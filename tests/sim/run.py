"""Play schedules: `python -m tests.sim.run --count 1000`, or one loudly: `--seed N`."""

import argparse
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count

from tests.sim.history import Broken
from tests.sim.schedule import Outcome, play

__all__ = ["play_many"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one and print all that happens")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1)
    args = parser.parse_args()
    if args.seed is not None:
        return _play_loudly(args.seed)
    begun_s = time.monotonic()
    outcomes, broken = play_many(args.first, args.count, args.jobs)
    spent_s = time.monotonic() - begun_s
    print(f"{args.count} schedules in {spent_s:.1f} s on {args.jobs} processes")
    print(f"  ended {dict(Counter(str(o.phase) for o in outcomes))}")
    print(
        f"  {sum(o.generations for o in outcomes)} generations, "
        f"{sum(o.decisions for o in outcomes)} decisions, "
        f"{sum(o.virtual_s for o in outcomes):.0f} virtual seconds"
    )
    print(f"  faults {dict(Counter(f for o in outcomes for f in o.faults).most_common())}")
    for text in broken[:10]:
        print(text[:600], file=sys.stderr)
    if broken:
        print(f"{len(broken)} broken", file=sys.stderr)
    return 1 if broken else 0


def play_many(first: int, count: int, jobs: int) -> tuple[list[Outcome], list[str]]:
    """Play the seeds from `first` on; the outcomes of the good ones, the texts of the broken."""
    seeds = range(first, first + count)
    outcomes, broken = [], []
    if jobs == 1:
        results = [_play_quietly(seed) for seed in seeds]
    else:
        with ProcessPoolExecutor(jobs) as pool:
            results = list(pool.map(_play_quietly, seeds, chunksize=20))
    for result in results:
        if isinstance(result, Outcome):
            outcomes.append(result)
        else:
            broken.append(result)
    return outcomes, broken


def _play_quietly(seed: int) -> Outcome | str:
    try:
        return play(seed)
    except Broken as exc:
        return str(exc)


def _play_loudly(seed: int) -> int:
    try:
        print(play(seed, trace=print))
    except Broken:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
