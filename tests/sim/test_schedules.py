"""Thousands of short random schedules: no rule is broken, and every job ends.

Their seeds never change. A quarter of them are for every day, the others are a soak.
"""

import os
from functools import cache

import pytest

from tests.sim.run import play_many
from tests.sim.schedule import Outcome, play

FIRST = 1_000_000
COUNT = int(os.environ.get("ELASTICD_SCHEDULES", "2000"))
DAILY = COUNT // 4


@cache
def played(first: int, count: int) -> tuple[list[Outcome], list[str]]:
    """Play so many from there on; the same ones once in a process."""
    return play_many(first, count, jobs=os.cpu_count() or 1)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("first", "count"),
    [
        pytest.param(FIRST, DAILY, id="daily"),
        pytest.param(FIRST + DAILY, COUNT - DAILY, id="others", marks=pytest.mark.slow),
    ],
)
def test_no_schedule_breaks_a_rule_or_leaves_a_job_hanging(first: int, count: int) -> None:
    """Each seed draws a cluster, a job and faults; its number is in the text of what broke.

    More of them by command: `python -m tests.sim.run --count 100000`.
    """
    outcomes, broken = played(first, count)
    assert not broken, f"{len(broken)} of {count} broken, the first: {broken[0][:2000]}"
    assert len(outcomes) == count


def test_schedules_reach_what_they_are_for() -> None:
    """A schedule that never succeeds, fails, stops or re-forms would prove nothing."""
    outcomes, _ = played(FIRST, DAILY)
    assert {str(o.phase) for o in outcomes} == {"succeeded", "failed", "stopped"}
    assert sum(o.generations for o in outcomes) > 2 * len(outcomes)
    assert len({fault for o in outcomes for fault in o.faults}) >= 14


def test_one_seed_always_gives_the_same_history() -> None:
    """Without that a seed would be of no use."""
    lines: list[list[str]] = [[], []]
    for log in lines:
        play(FIRST + 3, trace=log.append)
    assert lines[0] == lines[1] and len(lines[0]) > 50
