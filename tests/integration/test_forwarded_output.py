"""What rank 0 prints is on the stdout of the agent that has it, as pods have it."""

from pathlib import Path

from tests.fixtures.cluster import Daemon, cluster_on, until


def shown(daemon: Daemon, job: str) -> list[str]:
    """Return what stands in an agent's log of a job's ranks, all of it whole lines of rank 0."""
    lines = [line for line in daemon.log.splitlines(keepends=True) if line.endswith("\n")]
    other = [line for line in lines if not line.startswith(("{", f"[{job} rank0] "))]
    assert other == []
    return [line.split("] ", 1)[1].rstrip() for line in lines if line.startswith("[")]


def test_lines_of_rank_0_are_in_the_log_of_the_agent_that_has_it(tmp_path: Path) -> None:
    """In its order and whole, and in another agent's when another node has rank 0."""
    with cluster_on(tmp_path / "cluster") as cluster:
        cluster.agent_flags = ("--forward-output", "rank0")
        for node in ("a", "b"):
            cluster.daemon(node)
        job = cluster.submit("job", "--nnodes", "1:2", script="steady.py")
        generation = job.wait_steady(2)
        first = cluster.daemons[job.node_of(0)]
        (other,) = (each for each in cluster.daemons.values() if each is not first)

        def steps(daemon: Daemon) -> list[str]:
            return [line for line in shown(daemon, job.name) if line.startswith("A ")]

        until(lambda: len(steps(first)) > 3, lambda: first.log[-2000:])
        assert steps(other) == []
        first.kill_node()
        job.wait_step(size=1, after=generation)
        until(lambda: steps(other), lambda: other.log[-2000:])
        last = job.finish().generation
        (wrote,) = (path.read_text() for path in cluster.runs.glob(f"{job.name}/gen-{last}/*.out"))
        until(
            lambda: "\n".join(shown(other, job.name)).endswith(wrote.rstrip()),
            lambda: (wrote[-1000:], other.log[-2000:]),
        )
