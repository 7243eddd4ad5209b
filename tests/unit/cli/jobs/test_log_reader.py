"""Output of ranks that ran on other nodes, some of which do not answer any more."""

from collections import Counter
from dataclasses import dataclass, field

from elasticd.cli.jobs.log_reader import RemoteLogs
from elasticd.control.logs.console import OUT
from elasticd.control.logs.log_slice import LogSlice, read_slice
from elasticd.control.logs.output import LogName
from elasticd.records.ids import Generation, JobName, Rank
from elasticd.records.member import Node
from tests.unit.control.world_case import node


@dataclass
class Servers:
    """Log servers, each with files by generation and rank, a chunk of two bytes at a time."""

    files: dict[str, dict[tuple[int, int], bytes]]
    silent: set[str] = field(default_factory=set)
    breaks: dict[str, int] = field(default_factory=dict)
    """By node: the offset from which on it does not answer."""
    asked: Counter[str] = field(default_factory=Counter)

    def __call__(self, node: Node, name: LogName, offset: int) -> bytes | None:
        self.asked[node.node] += 1
        if node.node in self.silent or offset >= self.breaks.get(node.node, offset + 1):
            return None
        data = self.files.get(node.node, {}).get((name.generation, name.rank), b"")
        return data[offset : offset + 2]

    def size(self, node: Node, name: LogName) -> int | None:
        self.asked[node.node] += 1
        if node.node in self.silent:
            return None
        return len(self.files.get(node.node, {}).get((name.generation, name.rank), b""))

    def close(self) -> None:
        pass


def read(logs: RemoteLogs, generation: int, rank: int = 0) -> bytes:
    name = LogName(job=JobName("j"), generation=Generation(generation), rank=Rank(rank), stream=OUT)
    log = logs.find(name)
    return b"".join(read_slice(log, LogSlice())) if log is not None else b""


def test_a_node_that_does_not_answer_is_asked_once() -> None:
    """50 generations and one dead node of 100 took minutes."""
    servers = Servers({"b": {(g, 0): b"hello" for g in range(1, 51)}}, silent={"a"})
    logs = RemoteLogs([node("a"), node("b")], servers)
    assert all(read(logs, generation) == b"hello" for generation in range(1, 51))
    assert servers.asked["a"] == 1
    assert logs.broken == []


def test_the_node_that_had_the_rank_is_asked_first() -> None:
    """It mostly still has it in the next generation."""
    servers = Servers({"z": {(1, 0): b"one", (2, 0): b"two"}})
    logs = RemoteLogs([node(name) for name in "abcz"], servers)
    assert read(logs, 1) + read(logs, 2) == b"onetwo"
    assert servers.asked["a"] == 1


def test_output_that_breaks_off_is_not_taken_for_whole() -> None:
    """What came is given, and that it is not all is known."""
    servers = Servers({"a": {(3, 1): b"hello"}}, breaks={"a": 4})
    logs = RemoteLogs([node("a")], servers)
    assert read(logs, 3, rank=1) == b"hell"
    assert logs.broken == ["rank 1, generation 3"]
