"""A node dies with its share of a sharded state before anything is durable; the next has it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.fixtures.cluster import Cluster, Job, cluster_on, until
from tests.fixtures.saved_runs import JOIN_S, assert_whole, is_close

NODES = ("a", "b")
BOTH = ("--nnodes", "1:2", "--join-window", f"{JOIN_S:g}")
GATE, LAST = 7, 12
NEWEST = 6
"""The only snapshot before step 7, after which all ranks stop. Where one of an earlier step were on
its way, this one would be left out."""


@pytest.fixture
def slots() -> int:
    """Of each node."""
    return 1


@pytest.fixture
def cluster(tmp_path: Path, slots: int) -> Iterator[Cluster]:
    with cluster_on(tmp_path / "cluster") as cluster:
        for daemon in [cluster.daemon(node, slots) for node in NODES]:
            daemon.wait_registered()  # One node is enough for the job, and would begin alone.
        yield cluster


def expected(last: int = LAST) -> list[float]:
    """What one process makes of it that knows nothing of shards."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        torch.manual_seed(1)
        xs = torch.randn(96, 4)
        ys = xs.sum(1, keepdim=True).sin()
        for _ in range(last):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(xs), ys).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return torch.cat([value.flatten() for value in model.state_dict().values()]).tolist()
    finally:
        torch.set_default_dtype(before)


def mirrored_step(cluster: Cluster, job: Job, node: str) -> int:
    """Of the newest share of a node that the other one holds too, by its keeper's own word."""
    path = cluster.runs / job.name / "agents" / f"{node}.keeper.prom"
    text = path.read_text() if path.exists() else ""
    found = re.search(r"^elasticd_checkpoint_mirrored_step\{.*\} (\S+)$", text, re.MULTILINE)
    return int(float(found[1])) if found else -1


def every_line(cluster: Cluster, job: Job, kind: str = "out") -> list[str]:
    """What rank 0 said, in all generations."""
    paths = sorted((cluster.runs / job.name).glob(f"gen-*/rank-0.{kind}"))
    return [line for path in paths for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("lost", [0, 1])
def test_loss_of_a_node_costs_no_snapshot_of_a_sharded_state(
    cluster: Cluster, tmp_path: Path, lost: int
) -> None:
    """Storage takes no checkpoint at all; agent, keeper and worker of one node are killed at once.
    The other node goes on from the newest snapshot, and ends with the weights of a calm run."""
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "steps").touch()  # A file where the folder should be: what is written there fails.
    job = cluster.submit(
        "mirrored", *BOTH, "--nproc-per-node", "1", "--checkpoint", f"file://{saved}",
        "--checkpoint-every", f"{NEWEST}steps", "--checkpoint-timeout", "3", script="mirrored.py",
    )  # fmt: skip
    until(
        lambda: all(mirrored_step(cluster, job, node) == NEWEST for node in NODES),
        lambda: [mirrored_step(cluster, job, node) for node in NODES],
    )
    cluster.daemons[job.node_of(lost)].kill_node()
    until(
        lambda: f'{{"begun": {NEWEST}, "size": 1}}' in every_line(cluster, job),
        lambda: (job.status, every_line(cluster, job)),
    )
    # The world of both is the first one that formed, which need not be the first that was tried.
    memory = re.compile(rf"Restored step {NEWEST} \(run 1, generation \d+\) from memory")
    said = every_line(cluster, job, "err")
    assert any(map(memory.search, said)), said
    (saved / "steps").unlink()
    for generation in range(1, 9):
        (tmp_path / "cluster" / f"gate-{generation}").touch()
    assert job.finish().phase.value == "succeeded"
    last = [line for line in every_line(cluster, job) if line.startswith('{"weights"')]
    assert is_close(json.loads(last[0])["weights"], expected())
    assert assert_whole(f"file://{saved}")[0].snapshot.step == LAST
    assert_no_token(tmp_path)


FAR_GATE, FAR_LAST = 40, 45
"""Far enough for the first snapshots of each step, which wait until the time of a step is known."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("lost", [0, 1])
def test_loss_of_a_node_goes_back_to_a_step_that_only_memory_has(
    cluster: Cluster, tmp_path: Path, lost: int
) -> None:
    """With snapshots of each step, while storage takes none: whatever was on its way when the node
    was killed, the other goes on from a step that both held, and ends with the weights of a calm
    run, which storage then has."""
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "steps").touch()  # A file where the folder should be: what is written there fails.
    job = cluster.submit(
        "each", *BOTH, "--nproc-per-node", "1", "--checkpoint", f"file://{saved}",
        "--checkpoint-every", "1steps", "--checkpoint-timeout", "3",
        "--env", f"MIRRORED_GATE={FAR_GATE}", "--env", f"MIRRORED_LAST={FAR_LAST}",
        script="mirrored.py",
    )  # fmt: skip
    until(
        lambda: any('"gate"' in line for line in every_line(cluster, job)),
        lambda: (job.status, every_line(cluster, job)),
    )
    until(
        lambda: min(mirrored_step(cluster, job, node) for node in NODES) >= NEWEST,
        lambda: [mirrored_step(cluster, job, node) for node in NODES],
    )
    held = min(mirrored_step(cluster, job, node) for node in NODES)
    cluster.daemons[job.node_of(lost)].kill_node()
    memory = re.compile(r"Restored step (\d+) \(run 1, generation \d+\) from memory")
    found = until(
        lambda: [
            int(at) for line in every_line(cluster, job, "err") for at in memory.findall(line)
        ],
        lambda: (job.status, every_line(cluster, job, "err")),
    )
    assert held <= found[-1] <= FAR_GATE
    (saved / "steps").unlink()
    for generation in range(1, 9):
        (tmp_path / "cluster" / f"gate-{generation}").touch()
    assert job.finish().phase.value == "succeeded"
    last = [line for line in every_line(cluster, job) if line.startswith('{"weights"')]
    assert is_close(json.loads(last[0])["weights"], expected(FAR_LAST))
    assert assert_whole(f"file://{saved}")[0].snapshot.step == FAR_LAST


@pytest.mark.slow
@pytest.mark.parametrize("slots", [2])
def test_training_begins_anew_where_a_shard_is_lost_before_the_first_snapshot(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Both ranks of the node that is left say so alike, and that does not end the job."""
    job = cluster.submit(
        "early", *BOTH, "--nproc-per-node", "2", "--checkpoint", f"file://{tmp_path}/s",
        "--checkpoint-every", "1h", "--env", "MIRRORED_GATE=3", script="mirrored.py",
    )  # fmt: skip
    until(
        lambda: any('"gate"' in line for line in every_line(cluster, job)),
        lambda: (job.status, every_line(cluster, job)),
    )
    cluster.daemons[job.node_of(0)].kill_node()
    until(
        lambda: any("the training begins anew" in line for line in every_line(cluster, job, "err")),
        lambda: (job.status, every_line(cluster, job, "err")),
    )
    for generation in range(1, 9):
        (tmp_path / "cluster" / f"gate-{generation}").touch()
    assert job.finish().phase.value == "succeeded"
    last = [line for line in every_line(cluster, job) if line.startswith('{"weights"')]
    assert is_close(json.loads(last[0])["weights"], expected())


def assert_no_token(folder: Path) -> None:
    """No file of the run has one, etcd's among them."""
    for path in folder.rglob("*"):
        if path.is_file():
            assert not re.search(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", path.read_bytes()), path
