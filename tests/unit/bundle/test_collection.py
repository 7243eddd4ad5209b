"""What nodes and disks give, in which order, within which time; and what is said of the rest."""

import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from elasticd.bundle import collection
from elasticd.bundle.agent_client import AgentClient
from elasticd.bundle.collection import BundleRequest, from_agents, from_disk, worth
from elasticd.bundle.job_files import JobFile, JobFiles
from elasticd.bundle.mask import Mask, MaskedValue
from elasticd.bundle.part import Parts
from elasticd.records.ids import JobName, NodeId
from elasticd.records.member import Node
from elasticd.store.api import StoreSettings
from tests.fixtures.patience import patience_s
from tests.unit.control.world_case import node

LIMIT_S = patience_s(30.0)

JOB = JobName("j")
WANTED = BundleRequest(job=JOB, mask=Mask([MaskedValue(name="K", value="canary-1")]))


@dataclass
class FakeAgent(AgentClient):
    """An agent that has some files; it may be of old, fall silent, or hang."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    is_old: bool = False
    is_silent: bool = False
    dies_after: int = 1000
    hangs: threading.Event | None = None

    def list(self) -> list[JobFile] | None:
        if self.is_old:
            return None
        return [JobFile(name=name, size=len(data)) for name, data in self.files.items()]

    def end(self, name: str, limit_bytes: int) -> bytes | None:
        self.dies_after -= 1
        if self.dies_after < 0:
            self.is_silent = True
            return None
        return self.files[name][-limit_bytes:]

    def log(self) -> bytes | None:
        if self.hangs is not None:
            self.hangs.wait(patience_s(30.0))
        return None if self.is_silent or self.is_old else b"log canary-1\n"

    def versions(self) -> bytes | None:
        return None if self.is_old else b"{}"

    def metrics(self) -> bytes | None:
        return b"up 1\n"

    def close(self) -> None:
        pass


@pytest.fixture
def held() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def asked(agents: Mapping[str, FakeAgent], limit_s: float = LIMIT_S) -> Mapping[NodeId, Parts]:
    def opened(there: Node, job: JobName, settings: StoreSettings | None) -> AgentClient:
        return agents[there.node]

    nodes = [node(name, 1) for name in agents]
    return from_agents(nodes, None, WANTED, limit_s=limit_s, opened=opened)


def paths(parts: Parts) -> list[str]:
    return [part.path for part in parts.found]


def test_what_a_reader_looks_at_first_comes_first() -> None:
    """Stacks and agents, who failed, the newest output, and the older one last."""
    names = [
        "gen-8/rank-0.out",
        "gen-9/rank-0.out",
        "prepared/x.err",
        "gen-8/rank-3.err",
        "gen-9/rank-2.out",
        "incidents/gen-8.a.stacks.txt",
        "gen-7/rank-0.out",
    ]
    failed = frozenset({(8, 3)})
    assert sorted(names, key=lambda name: worth(name, failed, 9)) == [
        "incidents/gen-8.a.stacks.txt",
        "gen-8/rank-3.err",
        "gen-9/rank-0.out",
        "gen-9/rank-2.out",
        "prepared/x.err",
        "gen-8/rank-0.out",
        "gen-7/rank-0.out",
    ]


def test_each_node_gives_its_own_and_no_file_comes_twice() -> None:
    """Agents that share a folder all list what is in it."""
    shared = {"gen-1/rank-0.out": b"x canary-1", "gen-1/rank-1.out": b"y"}
    found = asked({"a": FakeAgent(files=shared), "b": FakeAgent(files=shared)})
    both = paths(found[NodeId("a")]) + paths(found[NodeId("b")])
    assert sorted(both) == [
        "metrics/a.txt",
        "metrics/b.txt",
        "run/j/agents/a.log",
        "run/j/agents/b.log",
        "run/j/gen-1/rank-0.out",
        "run/j/gen-1/rank-1.out",
        "versions/a.json",
        "versions/b.json",
    ]
    data = b"".join(part.data for parts in found.values() for part in parts.found)
    assert b"canary-1" not in data
    assert not any(parts.missing for parts in found.values())


def test_silence_age_and_a_death_in_between_are_named() -> None:
    """And cost the others nothing."""
    files = {"gen-1/rank-0.out": b"x", "gen-1/rank-1.out": b"y"}
    found = asked(
        {
            "dead": FakeAgent(is_silent=True),
            "old": FakeAgent(is_old=True),
            "dying": FakeAgent(files=files, dies_after=1),
        }
    )
    said = {name: [each.sentence for each in parts.missing] for name, parts in found.items()}
    silent = "its agent does not answer (127.0.0.1:1)"
    older = "its agent is of a version that does not give these"
    assert said == {
        "dead": [f"node dead: {silent}"],
        "old": [
            f"{what} of node old: {older}" for what in ("agent's own log", "versions", "files")
        ],
        "dying": [f"node dying: {silent}"],
    }
    assert "run/j/gen-1/rank-0.out" in paths(found[NodeId("dying")])


def test_a_node_that_hangs_is_done_without(held: threading.Event) -> None:
    """What comes after the limit is not taken any more."""
    limit_s = math.ceil(patience_s(3.0))  # The other node may have no core for two seconds.
    found = asked({"a": FakeAgent(hangs=held), "b": FakeAgent()}, limit_s=limit_s)
    missing = found[NodeId("a")].missing
    assert [each.what for each in missing] == ["node a"] and f"{limit_s} s" in missing[0].why
    assert len(paths(found[NodeId("b")])) == 3
    held.set()
    assert paths(found[NodeId("a")]) == []


def test_of_very_many_nodes_each_gives_less_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of whoever asks has an end."""
    monkeypatch.setattr(collection, "RAW_BYTES", 100)
    files = {f"gen-1/rank-{rank}.out": b"x" * 20 for rank in range(5)}
    found = asked({"a": FakeAgent(files=files), "b": FakeAgent()})
    assert [path for path in paths(found[NodeId("a")]) if "gen-" in path] == [
        "run/j/gen-1/rank-0.out",
        "run/j/gen-1/rank-1.out",
    ]
    assert [each.what for each in found[NodeId("a")].missing] == ["3 files of node a"]


def test_disk_gives_what_no_agent_gave_and_names_what_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file that hangs on a bad disk is one line, not the end."""
    place = tmp_path / "gen-1"
    place.mkdir()
    for rank in range(3):
        (place / f"rank-{rank}.out").write_text(f"{rank} canary-1")
    real = JobFiles.end

    def end(self: JobFiles, name: str, mask: Mask, limit_bytes: int = 0) -> bytes:
        if "rank-2" in name:
            raise OSError(5, "Input/output error")
        return real(self, name, mask, limit_bytes)

    monkeypatch.setattr(JobFiles, "end", end)
    parts = from_disk(tmp_path, WANTED, {"run/j/gen-1/rank-0.out"})
    assert [(part.path, part.data) for part in parts.found] == [
        ("run/j/gen-1/rank-1.out", b"1 ***K***")
    ]
    assert [each.sentence for each in parts.missing] == [
        "run/j/gen-1/rank-2.out: it cannot be read (Input/output error)"
    ]
