"""Play schedules: `python -m tests.sim.run --count 1000`, or one loudly: `--seed N`."""

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count

from tests.sim import in_process_schedule
from tests.sim.history import Broken
from tests.sim.schedule import Outcome, play

__all__ = ["play_in_process", "play_many"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one and print all that happens")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1)
    parser.add_argument("--in-process", action="store_true", help="jobs that call elasticd.run")
    args = parser.parse_args()
    if args.seed is not None:
        return _play_loudly(args.seed, is_in_process=args.in_process)
    begun_s = time.monotonic()
    kind = play_in_process if args.in_process else _play_quietly
    outcomes, broken = play_many(args.first, args.count, args.jobs, kind)
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


def play_many(
    first: int, count: int, jobs: int, kind: Callable[[int], Outcome | str] | None = None
) -> tuple[list[Outcome], list[str]]:
    """Play the seeds from `first` on; the outcomes of the good ones, the texts of the broken."""
    kind = kind or _play_quietly
    seeds = range(first, first + count)
    outcomes, broken = [], []
    if jobs == 1:
        results = [kind(seed) for seed in seeds]
    else:
        with ProcessPoolExecutor(jobs) as pool:
            results = list(pool.map(kind, seeds, chunksize=20))
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


def play_in_process(seed: int) -> Outcome | str:
    try:
        return in_process_schedule.play(seed).outcome
    except Broken as exc:
        return str(exc)


def _play_loudly(seed: int, *, is_in_process: bool) -> int:
    try:
        print((in_process_schedule.play if is_in_process else play)(seed, trace=print))
    except Broken:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
