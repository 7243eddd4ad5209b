"""A node that all others wait for, with real processes: it is named, with what it costs, and
drained where that was asked for.
"""

import json
from pathlib import Path

from elasticd.records.account.late import LateNode, LateNodes
from elasticd.records.codec import decode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.member import Drain
from elasticd.records.world import World
from elasticd.telemetry.metrics.exposition import parsed
from tests.fixtures.cluster import Cluster, cluster_on, until
from tests.fixtures.http_server import ask

SCRIPT = Path(__file__).parents[2] / "fixtures" / "scripts" / "paced.py"
JOB = JobName("late")
STEP_S = 0.1
"""So long that what a busy machine adds to some steps of a node makes it no late one."""
MUCH_SLOWER = "3.0"
"""So slow that no machine is busy enough to hide it."""


def test_slow_node_is_named_and_an_undisturbed_one_is_not(tmp_path: Path) -> None:
    """Its steps take 30 % longer from some step on, and then do not any more."""
    with cluster_on(tmp_path) as cluster:
        for node in ("a", "b"):
            cluster.daemon(node)
        place = (str(tmp_path), str(STEP_S))
        call = cluster.call("run", "--job", JOB, "--nnodes", "2", str(SCRIPT), *place)
        until(lambda: step(tmp_path) >= 60, lambda: call.err)
        assert late(cluster) == []

        (tmp_path / "slow-b").touch()
        slow_at = step(tmp_path)
        (found,) = until(lambda: late(cluster), lambda: call.err)
        found_at = step(tmp_path)
        assert found.node == "b"
        # Nearly a third of a step; how much the machine adds to one is its own affair.
        assert 0.08 < found.ratio < 0.5
        assert found_at - slow_at < 200
        said = cluster.run("status", JOB).out
        assert "node b is " in said
        assert " % late since " in said
        seen = " ".join(cluster.run("top", JOB, "--once").out.split())
        assert "! node b is " in seen
        assert " % late since " in seen
        # One agent tells of it, the one of rank 0; each of its own workers' waits.
        until(lambda: [r > 0.0 for r in metric(cluster, "late_ratio")] == [True], lambda: call.err)
        until(
            lambda: [s > 0.0 for s in metric(cluster, "step_wait_seconds_total")] == [True, True],
            lambda: call.err,
        )

        (tmp_path / "slow-b").unlink()
        until(lambda: all(each.until_unix_s for each in late(cluster)), lambda: call.err)
        until(lambda: told(tmp_path) == [("b", False), ("b", True)], lambda: told(tmp_path))

        # Late once more, and this time at the end of the job: that is where it ends.
        (tmp_path / "slow-b").write_text(MUCH_SLOWER)
        until(lambda: not all(each.until_unix_s for each in late(cluster)), lambda: call.err)
        (tmp_path / "end").touch()
        assert call.wait().code == 0
        until(lambda: all(each.until_unix_s for each in late(cluster)), lambda: late(cluster))
        why = cluster.run("why", JOB).out
        assert why.count("node b was ") == 2
        assert "until the end" not in why
        plain = json.loads(cluster.run("why", JOB, "--json").out)
        assert [each["node"] for each in plain["late"]] == ["b", "b"]
        until(lambda: told(tmp_path) == 2 * [("b", False), ("b", True)], lambda: told(tmp_path))


def test_late_node_is_drained_where_that_was_asked_for(tmp_path: Path) -> None:
    """The job goes on without it, and whoever asks is told why it left."""
    with cluster_on(tmp_path) as cluster:
        for node in ("a", "b"):
            cluster.daemon(node).wait_registered()
        (tmp_path / "slow-b").write_text(MUCH_SLOWER)
        flags = ("--job", JOB, "--nnodes", "1:2", "--on-late", "drain")
        call = cluster.call("run", *flags, str(SCRIPT), str(tmp_path), str(STEP_S / 2))
        until(lambda: nodes(cluster) == ["a", "b"], lambda: call.err)
        until(lambda: [each.node for each in late(cluster)] == ["b"], lambda: call.err)

        until(lambda: late(cluster)[0].drained_unix_s, lambda: late(cluster))
        until(lambda: nodes(cluster) == ["a"], lambda: call.err)
        drain = cluster.store.get(cluster.keys.drain(NodeId("b")))
        assert drain is not None
        assert decode(Drain, drain.value).why.startswith(f"job {JOB}: its steps take ")
        made = step(tmp_path)
        until(lambda: step(tmp_path) > made, lambda: call.err)
        until(lambda: late(cluster)[0].until_unix_s, lambda: late(cluster))

        (tmp_path / "end").touch()
        assert call.wait().code == 0
        why = cluster.run("why", JOB).out
        assert "node b was " in why
        assert "; drained at " in why


def nodes(cluster: Cluster) -> list[str]:
    """Those of the standing world."""
    item = cluster.store.get(cluster.keys.world(JOB))
    return sorted(node.node for node in decode(World, item.value).nodes) if item else []


def told(folder: Path) -> list[tuple[str, bool]]:
    """Whom the agents' files of incidents name as late, and whether that is over."""
    lines = [
        json.loads(line)
        for path in folder.rglob("incidents.jsonl")
        for line in path.read_text().splitlines()
    ]
    return [
        (line["late"]["node"], line["late"]["until_unix_s"] > 0.0)
        for line in lines
        if "late" in line
    ]


def metric(cluster: Cluster, name: str) -> list[float]:
    """What the agents export of it for the job."""
    ports = [daemon.wait_registered().http_port for daemon in cluster.daemons.values()]
    texts = [ask(port, "/metrics")[1].decode() for port in ports]
    wanted = (f"elasticd_{name}", (JOB,))
    return [v for text in texts for n, labels, v in parsed(text) if (n, labels) == wanted]


def late(cluster: Cluster) -> list[LateNode]:
    item = cluster.store.get(cluster.keys.late(JOB))
    return list(decode(LateNodes, item.value).nodes) if item is not None else []


def step(folder: Path) -> int:
    path = folder / "step"
    return int(path.read_text()) if path.exists() else 0
