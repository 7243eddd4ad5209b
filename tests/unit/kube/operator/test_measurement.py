"""What the operator shows of running jobs between the answers of their agents."""

from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any

import pytest

from elasticd.kube.operator.measurement import EVERY_S, Measurements
from elasticd.kube.resource.job_records import ReportedProgress
from elasticd.records.account.progress import RankProgress
from elasticd.records.ids import Generation, JobName, Rank
from tests.unit.control.world_case import world

JOB = JobName("x")
WORLD = world(1, "a")


class Agents:
    """The agents of one job; `answer` is what they say, or why nobody hears it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.answer: tuple[RankProgress, ...] | Exception = ()
        self.measurements = Measurements(
            None, now_s=lambda: self.now_s, asker=lambda _: lambda *_: self._say()
        )

    def _say(self) -> tuple[RankProgress, ...]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def ask(self) -> Mapping[JobName, ReportedProgress]:
        """Ask when it is time, wait for the answer, and return what is known then."""
        self.now_s += EVERY_S
        self.measurements.follow({JOB: WORLD}, {})
        asked: Any = vars(self.measurements)["_asked"][JOB][1]
        assert isinstance(asked, Future)
        wait([asked])
        return dict(self.measurements.follow({JOB: WORLD}, {}))


@pytest.mark.parametrize("answer", [(), OSError("away")], ids=["empty", "none"])
def test_answer_without_numbers_changes_no_number(answer: Any) -> None:
    """What is missing is not zero: the last size and step stand until there are others."""
    agents = Agents()
    try:
        rank = RankProgress(rank=Rank(0), generation=Generation(1), pid=1, step=7, step_s=0.5)
        agents.answer = (rank,)
        known = agents.ask()
        assert known == {JOB: ReportedProgress(step=7, steps_per_second=2.0)}
        agents.answer = answer
        assert agents.ask() == known
        assert agents.measurements.follow({}, {}) == {}, "a job that does not run has no numbers"
    finally:
        agents.measurements.close()
