"""What the operator shows of running jobs between the answers of their agents."""

from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any

import pytest

from elasticd.kube.operator.measurement import EVERY_S, Measurements
from elasticd.kube.resource.job_records import ReportedProgress
from elasticd.records.account.progress import RankProgress
from elasticd.records.ids import Generation, JobName, Rank
from tests.fixtures.captured_log import captured_log
from tests.unit.control.world_case import world

JOB = JobName("x")
WORLD = world(1, "a")
NAN, FAR = float("nan"), 1e30


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


@pytest.mark.parametrize(
    "odd",
    [
        {"checkpoint_ago_s": NAN},
        {"checkpoint_ago_s": FAR},
        {"step_s": float("inf")},
        {"step_s": 5e-324},
        {"step": 2**70},
    ],
    ids=["no number", "no date", "no rate", "no duration", "no count"],
)
def test_answer_with_a_number_that_cannot_be_is_dropped_and_told_once(odd: dict[str, Any]) -> None:
    """Else every look at the cluster raises again, and no job of the operator's is seen to."""
    agents = Agents()
    sound = RankProgress(rank=Rank(0), generation=Generation(1), pid=1, step=7, step_s=0.5)
    try:
        agents.answer = (sound,)
        known = agents.ask()
        with captured_log() as lines:
            agents.answer = (replace(sound, **odd),)
            assert [agents.ask(), agents.ask()] == [known, known]
            agents.answer = (replace(sound, step=8),)
            assert agents.ask() == {JOB: ReportedProgress(step=8, steps_per_second=2.0)}
        assert [line["event"] for line in lines] == ["progress.refused"]
    finally:
        agents.measurements.close()
