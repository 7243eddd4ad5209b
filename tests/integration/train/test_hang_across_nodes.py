"""A rank that hangs on one node while those of another wait for it."""

from functools import partial
from pathlib import Path

from elasticd.records.account.incident import Incident
from elasticd.records.codec import decode
from elasticd.records.ids import Generation, JobName, NodeId
from elasticd.records.reason import Reason
from elasticd_agent.liveness.stack_dump import stacks_path
from tests.fixtures.applied import play
from tests.fixtures.cluster import cluster_on, until
from tests.fixtures.patient_agent import PATIENT_WITH_STACKS

FOREVER_S = 100_000


def test_rank_that_hangs_costs_its_own_process_and_is_found_as_on_one_node(
    tmp_path: Path,
) -> None:
    """Long before the limit that holds for all: the nodes compare how far their ranks are.

    Whoever waited for it keeps process and state; both nodes write down where their ranks stood,
    and the hung one's agent says whom it ends.
    """
    with cluster_on(tmp_path) as cluster:
        cluster.agent_prefix = PATIENT_WITH_STACKS
        daemons = {node: cluster.daemon(node, slots=1) for node in ("a", "b")}
        options = ("--nnodes", "1:2", "--progress-timeout", str(FOREVER_S))
        job = cluster.submit("apart", *options, script="steady.py")
        generation = job.wait_steady(2)
        # How long a step takes must be known, and that is told five times a second.
        until(lambda: len(job.log.steps()) > 100, lambda: job.log.steps())
        before = job.log.pids(generation)
        play(job, 1, "spin")
        job.wait_step(size=1, after=generation)
        job.wait_step(size=2, after=generation + 1)
        assert job.wait_steady(2) == generation + 2, "one change without it, one with another"
        after = job.log.pids(generation + 2)
        assert before[0] in after.values() and before[1] not in after.values()

        def told() -> list[Incident]:
            items = cluster.store.list(cluster.keys.incidents(job.name)).items
            return [decode(Incident, item.value) for item in items]

        culprit = until(
            lambda: next((i.culprit for i in told() if i.reason is Reason.WORKER_HUNG), None), told
        )
        # Each node writes down what it went through for itself.
        until(lambda: any(i.unnoticed_s for i in told()), told)
        assert (culprit.rank, culprit.is_hung, culprit.step is not None) == (1, True, True)
        for node in ("a", "b"):
            path = stacks_path(
                cluster.runs, JobName(job.name), Generation(generation), NodeId(node)
            )
            text = until(partial(_text_of, path), lambda: "a node wrote no stacks")
            assert "steady.py" in text and ("in play" in text) is (node == culprit.node)
        assert '"worker.hung"' in daemons[culprit.node].log
        assert job.finish().phase.value == "succeeded"
        training = next(iter(job.results.values())).training
        assert training is not None
        assert (training.repeated, training.skipped) == (0, 0)


def test_rank_that_others_of_its_node_wait_for_costs_its_own_process_alone(tmp_path: Path) -> None:
    """Two nodes of two ranks each: its agent ends it, once the other node has answered."""
    with cluster_on(tmp_path) as cluster:
        for node in ("a", "b"):
            cluster.daemon(node, slots=2)
        options = ("--nnodes", "1:2", "--nproc-per-node", "2", "--progress-timeout", str(FOREVER_S))
        job = cluster.submit("apart", *options, script="steady.py")
        generation = job.wait_steady(4)
        until(lambda: len(job.log.steps()) > 100, lambda: job.log.steps())
        before = job.log.pids(generation)
        play(job, 3, "spin")
        job.wait_step(size=4, after=generation)
        after = job.log.pids(job.wait_steady(4))
        kept = {pid for rank, pid in before.items() if rank != 3}
        assert kept < set(after.values()) and before[3] not in after.values()
        assert job.finish().phase.value == "succeeded"


def _text_of(path: Path) -> str:
    text = path.read_text() if path.exists() else ""
    return text if text.endswith("\n\n") else ""  # As the last section ends.
