"""`elasticd autoscale run --dry-run`: what is written down, and that no job's size is touched."""

from dataclasses import replace

from elasticd.autoscale.decide import decide
from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.explain.explanation import explain_sections
from elasticd.autoscale.explain.size_wishes import summary
from elasticd.control.report.report import read_job
from elasticd.records.autoscale.decision import DecisionOutcome
from tests.fixtures.autoscaler_scene import POLICY, Cluster, FakeSource, JobScene, Leader, Ticks

SLOW = {"speed": QueryReading(value=5.0)}
"""Half of what the policy asks for."""


def trained(cluster: Cluster) -> JobScene:
    cluster.node("a", "b", "c", "d")
    job = cluster.job().submit(replace(POLICY, cooldown_s=0.0))
    job.want("autoscaler", 1)
    job.run("a")
    return job


def leader(cluster: Cluster, *, is_dry_run: bool) -> Leader:
    """Return one that has seen a whole window."""
    ticks = Ticks()
    found = Leader(cluster, decide, source=FakeSource(SLOW), now_s=ticks, is_dry_run=is_dry_run)
    for _ in range(5):
        found.evaluate()
        ticks.s += 30.0
    return found


def explained(cluster: Cluster, job: JobScene) -> str:
    report = read_job(cluster.store, cluster.keys, job.name)
    assert report is not None
    sections = explain_sections(report, leader="led by x", last=0, now_unix_s=0.0)
    lines = [line for section in sections for line in section.lines]
    return "\n".join([summary(report), *lines])


def test_decision_is_written_down_counted_and_not_done() -> None:
    """Once; the job's wants are what they were."""
    cluster = Cluster()
    job = trained(cluster)
    dry = leader(cluster, is_dry_run=True)
    assert job.wanted == 1
    (decision,) = job.decisions
    assert (decision.from_nodes, decision.to_nodes) == (1, 2) and decision.is_dry_run
    assert decision.outcome is DecisionOutcome.DRY_RUN
    assert b'decisions_total{rule="target",direction="up"} 1' in dry.counts.exposition()
    told = explained(cluster, job)
    assert told.startswith("autoscaler: dry run; ")
    assert "dry run: the autoscaler was started with --dry-run" in told
    assert "1 -> 2 nodes (target, dry run)" in told and "so nothing was done" in told


def test_leader_after_a_dry_run_sizes_the_job() -> None:
    """It goes on from the same records, and says no more of a dry run."""
    cluster = Cluster()
    job = trained(cluster)
    leader(cluster, is_dry_run=True).kill()
    leader(cluster, is_dry_run=False)
    assert job.wanted == 2
    assert [each.is_dry_run for each in job.decisions] == [True, False]
    told = explained(cluster, job)
    assert not told.startswith("autoscaler: dry run") and "--dry-run" not in told


def test_size_that_was_made_before_a_dry_run_stays() -> None:
    """The decision that was open is neither judged nor taken back, and waits for those that act."""
    cluster = Cluster()
    job = trained(cluster)
    leader(cluster, is_dry_run=False).kill()
    assert job.wanted == 2
    job.run("a", "b", new=("b",))
    leader(cluster, is_dry_run=True)
    assert job.wanted == 2
    made, planned = job.decisions
    assert made.outcome is DecisionOutcome.OPEN
    assert (planned.to_nodes, planned.is_dry_run) == (4, True)
    report = read_job(cluster.store, cluster.keys, job.name)
    assert report is not None and report.autoscaling is not None
    memory = report.autoscaling.memory
    assert memory is not None and memory.open_decision == made.number
