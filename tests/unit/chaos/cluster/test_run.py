"""A whole run against a cluster in memory: limits are kept, and the verdict tells what was seen."""

import itertools
from dataclasses import replace
from typing import Any, cast

import pytest

from chaos.cluster.fault import Kind
from chaos.cluster.observation import AgentPod, Worker
from chaos.cluster.plan import Plan
from chaos.cluster.recovery import UNHEARD_S
from chaos.cluster.run import ClusterRun
from chaos.cluster.verdict import Result, Verdict
from chaos.error import WrongInput
from tests.unit.chaos.cluster.small_cluster import SmallCluster

PLAN = Plan(faults=6, interval_s=30.0, recover_s=120.0, seed=3)


def run_of(cluster: SmallCluster, plan: Plan = PLAN, names: tuple[str, ...] = ()) -> ClusterRun:
    stop = cast(Any, cluster)
    return ClusterRun(
        cluster, plan, names, say=lambda _: None, stop=stop, now_s=lambda: cluster.now_s
    )


def result_of(verdict: Verdict, rule: str) -> Result:
    return next(one.result for one in verdict.findings if one.rule == rule)


def test_all_faults_are_done_one_after_the_other_and_every_rule_holds() -> None:
    """Each begins when the one before it is overcome, and not sooner than the interval."""
    cluster = SmallCluster()
    verdict = run_of(cluster).run()
    assert verdict.exit_code == 0 and len(cluster.deeds) == PLAN.faults
    assert cluster.most_away == 1 and verdict.log.most_disturbed == 1
    times = [at_s for at_s, *_ in cluster.deeds]
    assert all(b - a >= PLAN.interval_s for a, b in itertools.pairwise(times))
    assert {track.recovered_s is not None for track in verdict.log.tracks} == {True}
    judged = {one.rule for one in verdict.findings if one.result is Result.HELD}
    assert judged == {"alive", "goes on", "size", "steps", "at once", "losses"}


def test_what_cannot_be_judged_there_is_named_with_its_reason() -> None:
    verdict = run_of(SmallCluster()).run()
    told = {one.rule: one.why for one in verdict.findings if one.result is Result.NOT_JUDGED}
    assert set(told) == {"times", "parity", "samples"}
    assert "clocks of several machines are not compared" in told["times"]
    assert all(why in verdict.to_text() for why in told.values())


@pytest.mark.parametrize("at_once", [1, 2])
def test_never_more_pods_are_disturbed_than_at_once(at_once: int) -> None:
    """Even if the interval is shorter than a recovery."""
    cluster = SmallCluster(back_s=40.0)
    plan = replace(PLAN, at_once=at_once, interval_s=1.0)
    verdict = run_of(cluster, plan).run()
    assert cluster.most_away == verdict.log.most_disturbed == at_once
    assert verdict.holds


def test_a_pod_that_others_disturb_counts_for_the_limit() -> None:
    """A rollout, or a node that is drained: chaos does not come on top of it."""
    cluster = SmallCluster()
    cluster.away["b"] = cluster.now_s + 100.0
    run_of(cluster).run()
    assert cluster.deeds[0][0] >= 1100.0


def test_what_happens_while_pods_are_looked_into_counts() -> None:
    """A look into a pod takes time, and a rollout may begin meanwhile."""

    class SlowCluster(SmallCluster):
        def workers(self, pod: AgentPod) -> tuple[Worker, ...]:
            if not self.looks:
                self.away["b"] = self.now_s + 50.0
            self.looks += 1
            return super().workers(pod)

        looks = 0

    cluster = SlowCluster()
    began_s = cluster.now_s
    run_of(cluster).run()
    assert cluster.looks > PLAN.faults and cluster.deeds[0][0] >= began_s + 50.0


def test_a_pod_that_serves_another_job_is_left_alone() -> None:
    """The label is what permits it, job by job."""
    cluster = SmallCluster(strangers={"a": "default.y", "c": ""})
    verdict = run_of(cluster).run()
    assert {node for _, _, node, _ in cluster.deeds} == {"b"} and verdict.holds


def test_a_job_that_does_not_go_on_breaks_the_rule_and_ends_the_run() -> None:
    """Nothing else is broken while it stands still."""
    cluster = SmallCluster(goes_on=False)
    verdict = run_of(cluster).run()
    assert len(cluster.deeds) == 1 and verdict.exit_code == 1
    assert result_of(verdict, "goes on") is Result.BROKEN


def test_a_node_that_does_not_come_back_breaks_the_rule() -> None:
    cluster = SmallCluster(back_s=10_000.0)
    verdict = run_of(cluster).run()
    assert result_of(verdict, "size") is Result.BROKEN and len(cluster.deeds) == 1
    assert result_of(verdict, "goes on") is Result.HELD


def test_a_job_that_fails_breaks_the_rule() -> None:
    verdict = run_of(SmallCluster(is_dead_s=1030.0)).run()
    assert result_of(verdict, "alive") is Result.BROKEN and "budget spent" in verdict.to_text()


def test_steps_that_are_lost_break_the_rule() -> None:
    """Unless more are allowed, as in a job that goes back to a checkpoint."""
    verdict = run_of(SmallCluster(steps_lost=60)).run()
    assert result_of(verdict, "steps") is Result.BROKEN and verdict.exit_code == 1
    assert run_of(SmallCluster(steps_lost=60), replace(PLAN, steps_back=60)).run().holds


def test_a_loss_that_no_fault_explains_breaks_the_rule() -> None:
    plan = replace(PLAN, kinds=(Kind.WORKER_KILL,), faults=2)
    verdict = run_of(SmallCluster(reasons={Kind.WORKER_KILL: "node_lost"}), plan).run()
    assert result_of(verdict, "losses") is Result.BROKEN
    assert run_of(SmallCluster(), plan).run().holds


def test_told_to_end_it_judges_what_was_done_so_far() -> None:
    """A Job that is deleted gets SIGTERM."""
    cluster = SmallCluster(back_s=60.0, is_told_to_end=lambda now_s: now_s > 1040.0)
    verdict = run_of(cluster).run()
    assert verdict.ended == "it was told to end" and verdict.exit_code == 0
    assert result_of(verdict, "losses") is Result.NOT_JUDGED


def test_told_to_end_while_it_looks_for_a_victim_it_strikes_nobody() -> None:
    """Whoever deletes the Job must not see one more pod die after that."""
    cluster = SmallCluster(workers_s=20.0, is_told_to_end=lambda now_s: now_s > 1010.0)
    assert run_of(cluster).run().exit_code == 3 and not cluster.deeds


def test_a_run_that_did_nothing_is_no_success() -> None:
    """Whoever reads only the exit code must not take it for a verdict."""
    cluster = SmallCluster(is_told_to_end=lambda now_s: now_s > 1005.0)
    assert run_of(cluster).run().exit_code == 3


def test_what_is_refused_is_no_fault() -> None:
    cluster = SmallCluster(refuses=True)
    verdict = run_of(cluster, replace(PLAN, timeout_s=200.0)).run()
    assert verdict.exit_code == 3 and verdict.ended.startswith("--timeout")


@pytest.mark.parametrize("kind", list(Kind))
def test_what_was_never_done_is_not_judged_as_done(kind: Kind) -> None:
    """Its answer was lost; nothing is seen to be wrong for longer than the API server may take."""
    cluster = SmallCluster(loses_answers=True)
    verdict = run_of(cluster, replace(PLAN, kinds=(kind,), faults=2)).run()
    assert verdict.exit_code == 0 and len(verdict.log.tracks) == 2, verdict.to_text()
    assert all(not track.fault.is_sure for track in verdict.log.tracks)
    first, second = (at_s for at_s, *_ in cluster.deeds)
    assert second - first > UNHEARD_S, "it may be done yet"


def test_after_the_timeout_no_fault_begins() -> None:
    """And the last one is waited for."""
    cluster = SmallCluster()
    verdict = run_of(cluster, replace(PLAN, faults=1000, timeout_s=300.0)).run()
    assert cluster.deeds[-1][0] <= 1300.0 and not verdict.log.open and verdict.holds


def test_a_dry_run_touches_nothing_and_names_the_victims() -> None:
    cluster = SmallCluster()
    lines = run_of(cluster).rehearse()
    assert len(lines) == PLAN.faults and all(is_dry for *_, is_dry in cluster.deeds)
    assert cluster.job.generation == 1 and "default.x" in " ".join(lines)


@pytest.mark.parametrize(
    ("job", "plan", "word"),
    [
        ({"is_allowed": False}, {}, "kubectl label ej/x elasticd.dev/chaos=allowed"),
        ({"phase": "Succeeded"}, {}, "is Succeeded"),
        ({"phase": "Failed", "message": "All is lost."}, {}, "(All is lost)"),
        ({}, {"at_once": 3}, "--at-once"),
    ],
)
def test_a_job_that_is_not_to_be_broken_is_refused_in_a_sentence(
    job: dict[str, Any], plan: dict[str, Any], word: str
) -> None:
    cluster = SmallCluster()
    cluster.job = replace(cluster.job, **job)
    with pytest.raises(WrongInput) as caught:
        run_of(cluster, replace(PLAN, **plan)).run()
    assert word in str(caught.value) and not cluster.deeds


def test_a_job_that_is_not_there_is_refused_in_a_sentence() -> None:
    with pytest.raises(WrongInput, match="no ElasticJob y"):
        run_of(SmallCluster(), names=("y",)).run()


def test_the_last_node_with_the_state_is_left_alone() -> None:
    """A job that was made smaller meanwhile, without a checkpoint."""
    cluster = SmallCluster()
    cluster.job = cluster.true = replace(cluster.job, nodes=2, wanted=2)
    cluster.nodes = ("a", "b")
    plan = replace(PLAN, interval_s=1.0, at_once=1, faults=4)
    run_of(cluster, plan).run()
    assert cluster.most_away == 1


def test_the_last_pod_in_a_world_is_left_alone_whatever_the_status_says() -> None:
    """It is written every ten seconds. With a checkpoint nothing would be lost."""
    idle = frozenset({"a", "b"})
    plan = replace(PLAN, timeout_s=200.0)
    cluster = SmallCluster(idle=idle)
    assert run_of(cluster, plan).run().exit_code == 3 and not cluster.deeds
    cluster = SmallCluster(idle=idle)
    cluster.job = cluster.true = replace(cluster.job, has_checkpoint=True)
    run_of(cluster, plan).run()
    assert cluster.deeds
    assert {node for _, _, node, _ in cluster.deeds} == {"c"}


def test_a_verdict_reads_as_no_contradiction_whatever_a_job_is_called() -> None:
    """`held ... (broken: 3240)` does."""
    cluster = SmallCluster()
    cluster.job = cluster.true = replace(cluster.job, name="broken")
    told = run_of(cluster).run().to_text()
    assert "no job failed (job 'broken' is Running)" in told
    assert "by more than 1 step, as the status shows it (job 'broken' came to step" in told
    assert "at once 1 pod was disturbed at most, 1 may be" in told
    assert "broken:" not in told


def test_the_same_seed_draws_the_same() -> None:
    one, other = SmallCluster(), SmallCluster()
    run_of(one).run()
    run_of(other).run()
    assert one.deeds == other.deeds
    assert Plan(seed=4).draws() != Plan(seed=5).draws()
