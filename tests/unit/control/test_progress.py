"""How far a running job is, as its agents say when they are asked."""

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from elasticd.control import progress
from elasticd.control.progress import read_goodput, read_progress, read_ranks
from elasticd.control.report.report import JobReport
from elasticd.records.account.progress import RankProgress
from elasticd.records.account.time_spent import JobProgress
from elasticd.records.ids import Generation, JobName, Rank
from elasticd.records.job import JobStatus
from elasticd.records.reason import Phase
from elasticd.store.memory import MemoryStore
from elasticd_agent.liveness.progress_answer import RankState, progress_answer
from tests.fixtures.http_server import log_server
from tests.fixtures.patience import patience_s
from tests.unit.control.world_case import JOB, KEYS, SPEC, node, put, world

RUNNING = JobStatus(phase=Phase.RUNNING, generation=Generation(2))
PLAIN = RankProgress(
    rank=Rank(0),
    generation=Generation(2),
    step=21,
    committed_ago_s=7.5,
    scalars={"loss": 0.25},
    not_finite={"norm": 4},
)

Read = Callable[..., tuple[RankProgress, ...]]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that gets no core for a second and a half answers all the same."""
    monkeypatch.setattr(progress, "ANSWER_TIMEOUT_S", patience_s(30.0))


class Node:
    """An agent's server, and what the agent would say."""

    def __init__(self, folder: Path) -> None:
        self.found: bytes | None = None
        self.asked: list[JobName] = []
        self.server = log_server(folder, progress=self._answer)

    def _answer(self, job: JobName) -> bytes | None:
        self.asked.append(job)
        return self.found


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Node]:
    agent = Node(tmp_path)
    yield agent
    agent.server.close()


def read(
    *ports: int, status: JobStatus = RUNNING, of: Read = read_progress
) -> tuple[RankProgress, ...]:
    """Of a world of as many nodes, whose agents listen there."""
    store = MemoryStore()
    names = [f"n{number}" for number in range(len(ports))]
    for name, port in zip(names, ports, strict=True):
        put(store, KEYS.node(node(name).node), node(name, port))
    report = JobReport(spec=SPEC, status=status, world=world(2, *names))
    return of(store, KEYS, report, None)


def test_agent_of_rank_0_tells_where_its_ranks_stand(agent: Node, tmp_path: Path) -> None:
    """In the order of ranks; how old the last line is, it looks up itself."""
    (tmp_path / "out").write_text("hello")
    paths = (tmp_path / "out", tmp_path / "none")
    other = dataclasses.replace(PLAIN, rank=Rank(1))
    heard = [RankState(progress=p, outputs=paths) for p in (other, PLAIN)]
    agent.found = progress_answer(heard)
    found = read(agent.server.port)
    assert agent.asked == [JOB]
    assert [one.rank for one in found] == [0, 1]
    assert found[0].output_ago_s is not None and found[0].output_ago_s >= 0.0
    assert dataclasses.replace(found[0], output_ago_s=None, output_free_bytes=None) == PLAIN


def test_agent_tells_what_is_left_on_the_disk_to_which_its_ranks_write(
    agent: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else says that lines are dropped; before a rank has written there, nothing is told."""
    asked: list[Path] = []

    def full(folder: Path) -> SimpleNamespace:
        asked.append(folder)
        return SimpleNamespace(f_bfree=1000, f_bavail=3, f_frsize=4096)

    told = []
    for outputs in ((tmp_path / "gone" / "out",), (tmp_path / "out", tmp_path / "err"), ()):
        agent.found = progress_answer([RankState(progress=PLAIN, outputs=outputs)])
        told.append(read(agent.server.port)[0].output_free_bytes)
    assert told[0] is None and told[2] is None
    assert told[1] is not None and told[1] > 0
    monkeypatch.setattr(os, "statvfs", full)
    answer = progress_answer([RankState(progress=PLAIN, outputs=(tmp_path / "out",))])
    monkeypatch.undo()
    agent.found = answer
    assert read(agent.server.port)[0].output_free_bytes == 3 * 4096
    assert asked == [tmp_path]


def test_agent_tells_how_old_the_newest_checkpoint_is(agent: Node, tmp_path: Path) -> None:
    """By what its keeper writes for Prometheus; nothing where that makes no sense."""
    metrics = tmp_path / "a.keeper.prom"
    ages = []
    for text in (
        f'x 1\nelasticd_checkpoint_durable_timestamp_seconds{{job="j"}} {time.time() - 60.0}\n',
        'elasticd_checkpoint_durable_timestamp_seconds{job="j"} 0.0\n',
        "elasticd_checkpoint_durable_timestamp_seconds soon\n",
    ):
        metrics.write_text(text)
        agent.found = progress_answer(
            [RankState(progress=PLAIN, outputs=(), keeper_metrics=metrics)]
        )
        ages.append(read(agent.server.port)[0].checkpoint_ago_s)
    assert ages[0] is not None and 60.0 <= ages[0] < 100.0
    assert ages[1:] == [None, None]


def test_agent_tells_that_snapshots_wait_for_an_upload(agent: Node, tmp_path: Path) -> None:
    """By what its keeper writes, too; a keeper that says nothing of it holds nothing up."""
    metrics = tmp_path / "a.keeper.prom"
    said = []
    for text in (
        'elasticd_checkpoint_snapshots_held_up{job_name="j"} 1.0\n',
        'elasticd_checkpoint_snapshots_held_up{job_name="j"} 0.0\n',
        "elasticd_checkpoint_snapshots_held_up_too 1.0\n",
    ):
        metrics.write_text(text)
        agent.found = progress_answer(
            [RankState(progress=PLAIN, outputs=(), keeper_metrics=metrics)]
        )
        said.append(read(agent.server.port)[0].is_held_up)
    assert said == [True, False, False]


def test_another_node_is_asked_where_the_first_does_not_answer(agent: Node) -> None:
    """It is gone, or has nothing to say yet."""
    agent.found = progress_answer([RankState(progress=PLAIN, outputs=())])
    assert read(1, agent.server.port) == (PLAIN,)
    agent.found = None
    assert read(agent.server.port) == ()


def test_ranks_of_every_node_are_told_in_order(agent: Node, tmp_path: Path) -> None:
    """Process numbers are known on their own node alone; one that is gone is left out."""
    other = Node(tmp_path)
    agent.found = progress_answer(
        [RankState(progress=dataclasses.replace(PLAIN, rank=Rank(1), pid=7), outputs=())]
    )
    other.found = progress_answer([RankState(progress=PLAIN, outputs=())])
    try:
        found = read(agent.server.port, 1, other.server.port, of=read_ranks)
    finally:
        other.server.close()
    assert [(one.rank, one.pid) for one in found] == [(0, 0), (1, 7)]


_AGES = ("Infinity", "NaN", "1e400")
_RANK = b'[{"rank": 0, "generation": 1, %s}]'


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", b"[3]", b'[{"rank": "x"}]', b"\xff"),
        *(_RANK % f'"checkpoint_ago_s": {age}'.encode() for age in _AGES),
        _RANK % (b'"epochs": ' + b"9" * 400),
    ],
)
def test_answer_that_makes_no_sense_is_none(agent: Node, body: bytes) -> None:
    """Of another program on that port, say."""
    agent.found = body
    assert read(agent.server.port) == ()


def test_job_that_does_not_run_is_not_asked_for(agent: Node) -> None:
    """Its records say all there is."""
    assert read(agent.server.port, status=JobStatus(phase=Phase.WAITING)) == ()
    assert agent.asked == []


def test_goodput_is_that_of_the_account_of_a_job_whose_steps_are_seen() -> None:
    """Of this job, and not of an earlier one of its name; nothing where etcd does not answer."""
    store = MemoryStore()
    assert read_goodput(store, KEYS, SPEC) is None
    for uid, has_steps, expected in (
        (SPEC.uid, True, 0.75),
        (SPEC.uid, False, None),
        ("another", True, None),
    ):
        seconds = {"train": 30.0, "recover": 10.0, "spare": 99.0}
        record = JobProgress(uid=uid, has_steps=has_steps, seconds=seconds)
        put(store, KEYS.progress(JOB), record)
        assert read_goodput(store, KEYS, SPEC) == expected
    store.go_away()
    assert read_goodput(store, KEYS, SPEC) is None
