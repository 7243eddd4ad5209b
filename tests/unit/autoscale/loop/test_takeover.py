"""Leaders that are killed at any moment, with the shipped decision and a job that follows it."""

from dataclasses import replace

import pytest

from elasticd.autoscale.decide import decide
from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.records.autoscale.policy import Behavior
from tests.fixtures.autoscaler_scene import POLICY, Cluster, FakeSource, JobScene, Leader, Ticks

PERIOD_S = 15.0
NODES = ("a", "b", "c")
EVALUATIONS = 60
Sizes = list[tuple[str, int, int]]


class Life:
    """A job that makes 5 steps a second on each node, and later 30, where 12 are asked for."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.node(*NODES)
        self.clock = Ticks()
        self.source = FakeSource()
        self.job: JobScene = self.cluster.job(max_nodes=3).submit(None)
        target = POLICY.target
        assert target is not None
        metric = replace(target.metrics[0], target=12.0)
        rule = replace(target, metrics=(metric,), down=Behavior(stabilization_s=60.0))
        self.job.set(replace(POLICY, target=rule, window_s=30.0))
        self.job.want("autoscaler", 1)
        self.steps = 0.0
        self.size = 0
        self.began_s = self.clock.s
        self.leader = self.elected()

    def elected(self) -> Leader:
        return Leader(self.cluster, decide, source=self.source, now_s=self.clock)

    def go_on(self, number: int) -> None:
        """Let a quarter of a minute go by, and evaluate."""
        wanted = self.job.wanted or 1
        if wanted != self.size:
            before, self.size = NODES[: self.size], wanted
            self.job.run(*NODES[:wanted], new=[n for n in NODES[:wanted] if n not in before])
            for node in NODES[:wanted]:
                self.job.tell(node, step=round(self.steps) + 1, spent_s={"resize": 0.2})
            self.began_s = self.clock.s
        self.clock.s += PERIOD_S
        rate = (5.0 if number < EVALUATIONS / 2 else 30.0) * self.size
        self.steps += rate * PERIOD_S
        self.job.progress(round(self.steps), self.clock.s - self.began_s)
        self.source.values = {"speed": QueryReading(value=rate)}
        self.leader.evaluate()

    def kill(self) -> None:
        """Another process leads, whose clock reads something else."""
        self.leader.kill()
        shift_s = 4321.0
        self.clock.s += shift_s
        self.began_s += shift_s
        self.leader = self.elected()

    @property
    def sizes(self) -> Sizes:
        return [(each.rule, each.from_nodes, each.to_nodes) for each in self.job.decisions]


def lived(killed_after: tuple[int, ...]) -> Life:
    life = Life()
    for number in range(EVALUATIONS):
        life.go_on(number)
        if number in killed_after:
            life.kill()
    return life


UNDISTURBED = lived(()).sizes


def test_an_undisturbed_leader_grows_and_shrinks_once() -> None:
    """Else what follows says nothing."""
    assert UNDISTURBED == [("target", 1, 3), ("target", 3, 1)]


@pytest.mark.parametrize("killed_after", range(0, EVALUATIONS - 12, 3))
def test_whoever_leads_next_decides_the_same(killed_after: int) -> None:
    """Whenever the one before was killed: later perhaps, and never otherwise."""
    assert lived((killed_after,)).sizes == UNDISTURBED


def test_leaders_that_are_killed_again_and_again_decide_the_same_in_the_end() -> None:
    """Each of them has time for some evaluations."""
    assert lived(tuple(range(7, EVALUATIONS, 8))).sizes == UNDISTURBED
