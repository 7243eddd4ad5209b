"""Reading behind the workers, from files here and from agents elsewhere."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.control.logs.console import ERR, OUT, ConsoleChoice
from elasticd.control.logs.log_slice import LogSlice
from elasticd.control.logs.log_times import times_line
from elasticd.control.logs.output import HttpFetch, LogName, Tail, log_path
from elasticd.records.ids import Generation, NodeId, Rank
from elasticd_agent.http_server.logs import ANSWER_LIMIT_BYTES
from elasticd_agent.http_server.server import HttpServer
from tests.fixtures.http_server import log_server
from tests.fixtures.patience import patience_s
from tests.unit.control.world_case import JOB, node, world

PATIENCE_S = patience_s(10.0)
RANK_0 = LogName(job=JOB, generation=Generation(1), rank=Rank(0), stream=OUT)


class Screen:
    """Collects what is shown; `wait` for it without sleeping."""

    def __init__(self) -> None:
        self.shown = {OUT: b"", ERR: b""}
        self._changed = threading.Condition()

    def write(self, stream: int, data: bytes) -> None:
        with self._changed:
            self.shown[stream] += data
            self._changed.notify_all()

    def wait(self, stream: int, data: bytes) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.shown[stream] == data, PATIENCE_S), (
                self.shown
            )


def log(folder: Path, generation: int, rank: int, text: str, stream: int = OUT) -> None:
    name = LogName(job=JOB, generation=Generation(generation), rank=Rank(rank), stream=stream)
    path = log_path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def tail_of(folder: Path, screen: Screen, choice: ConsoleChoice, own: str = "") -> Tail:
    return Tail(
        job=JOB,
        run_folder=folder,
        choice=choice,
        write=screen.write,
        own_nodes=frozenset(map(NodeId, own)),
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpServer]:
    opened = log_server(tmp_path / "there")
    yield opened
    opened.close()


def test_rank_0_is_shown_as_it_writes_stream_by_stream(tmp_path: Path) -> None:
    """Half lines too: a progress bar has no line ends."""
    screen = Screen()
    tail = tail_of(tmp_path, screen, ConsoleChoice(), "ab")
    tail.show(world(1, "a", "b"), {})
    log(tmp_path, 1, 0, "10 %")
    log(tmp_path, 1, 0, "oh\n", ERR)
    log(tmp_path, 1, 1, "not shown\n")
    screen.wait(OUT, b"10 %")
    log(tmp_path, 1, 0, " 20 %\n")
    screen.wait(OUT, b"10 % 20 %\n")
    screen.wait(ERR, b"oh\n")
    tail.finish(PATIENCE_S)


def test_the_next_generation_is_shown_from_its_begin(tmp_path: Path) -> None:
    """And what the old one wrote while it was stopped is not lost."""
    screen = Screen()
    tail = tail_of(tmp_path, screen, ConsoleChoice(), "a")
    log(tmp_path, 1, 0, "one\n")
    tail.show(world(1, "a"), {})
    tail.show(world(2, "a"), {})
    log(tmp_path, 1, 0, "stopping\n")
    screen.wait(OUT, b"one\nstopping\n")
    log(tmp_path, 2, 0, "two\n")
    tail.finish(PATIENCE_S)
    assert screen.shown[OUT] == b"one\nstopping\ntwo\n"


def test_several_ranks_get_a_prefix_and_whole_lines(tmp_path: Path) -> None:
    """Lines of two ranks must not mix; the last one may lack its end."""
    screen = Screen()
    choice = ConsoleChoice(local_ranks=frozenset({0}))
    tail = tail_of(tmp_path, screen, choice, "ab")
    log(tmp_path, 1, 0, "x\ny")
    log(tmp_path, 1, 1, "z\n")
    tail.show(world(1, "a", "b"), {})
    tail.finish(PATIENCE_S)
    assert sorted(screen.shown[OUT].splitlines()) == [b"[rank0]:x", b"[rank0]:y", b"[rank1]:z"]


def test_a_joining_host_shows_its_own_ranks_only(tmp_path: Path) -> None:
    """As with torchrun; rank 0 is shown where it runs."""
    screen = Screen()
    tail = tail_of(tmp_path, screen, ConsoleChoice(), "b")
    log(tmp_path, 1, 0, "of the other host, on a shared disk\n")
    tail.show(world(1, "a", "b"), {})
    tail.finish(PATIENCE_S)
    assert screen.shown[OUT] == b""


def test_another_hosts_output_comes_from_its_agent(tmp_path: Path, server: HttpServer) -> None:
    """More than one answer holds, to the end."""
    screen = Screen()
    text = "x" * (ANSWER_LIMIT_BYTES + 10) + "\n"
    log(tmp_path / "there", 1, 0, text)
    tail = Tail(
        job=JOB,
        run_folder=tmp_path / "here",
        choice=ConsoleChoice(),
        write=screen.write,
        fetch=HttpFetch(),
    )
    tail.show(world(1, "a"), {NodeId("a"): node("a", server.port)})
    tail.finish(PATIENCE_S)
    assert screen.shown[OUT] == text.encode()


@pytest.mark.parametrize("is_here", [True, False])
def test_last_lines_alone_are_shown_of_what_is_there(
    is_here: bool, tmp_path: Path, server: HttpServer
) -> None:
    """Then all that is written, and of the next world everything."""
    screen, folder = Screen(), tmp_path / "there"
    tail = Tail(
        job=JOB,
        run_folder=folder if is_here else tmp_path / "here",
        choice=ConsoleChoice(),
        write=screen.write,
        own_nodes=frozenset({NodeId("a")} if is_here else ()),
        fetch=None if is_here else HttpFetch(),
        wanted=LogSlice(lines=1),
    )
    log(folder, 1, 0, "old\n" * 50_000 + "one\n")
    nodes = {NodeId("a"): node("a", server.port)}
    tail.show(world(1, "a"), nodes)
    screen.wait(OUT, b"one\n")
    log(folder, 1, 0, "two\n")
    screen.wait(OUT, b"one\ntwo\n")
    log(folder, 2, 0, "three\nfour\n")
    tail.show(world(2, "a"), nodes)
    tail.finish(PATIENCE_S)
    assert screen.shown[OUT] == b"one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize("is_here", [True, False])
def test_followed_output_begins_at_a_time_and_passes_over_what_was_dropped(
    is_here: bool, tmp_path: Path, server: HttpServer
) -> None:
    """The node's notes say where that is, wherever the log stands."""
    screen, folder = Screen(), tmp_path / "there"
    tail = Tail(
        job=JOB,
        run_folder=folder if is_here else tmp_path / "here",
        choice=ConsoleChoice(),
        write=screen.write,
        own_nodes=frozenset({NodeId("a")} if is_here else ()),
        fetch=None if is_here else HttpFetch(),
        wanted=LogSlice(since_unix_s=1_500.0),
    )
    log(folder, 1, 0, "old\n" * 2048 + "new\n" * 1024 + "\0" * (3 << 20) + "last\n")
    times = log_path(folder, RANK_0).with_suffix(".times")
    times.write_bytes(times_line(1_000, 8_192, 0) + times_line(2_000, 12_288, 0))
    tail.show(world(1, "a"), {NodeId("a"): node("a", server.port)})
    tail.finish(PATIENCE_S)
    shown = screen.shown[OUT]
    assert shown.startswith(b"new\n" * 1024) and shown.endswith(b"here: --log-max\nlast\n")
    assert b"old" not in shown and b"\0" not in shown and b"3145728 bytes" in shown


def test_an_agent_that_is_gone_is_no_error() -> None:
    """Its output is, as far as it was not read."""
    fetch = HttpFetch()
    name = LogName(job=JOB, generation=Generation(1), rank=Rank(0), stream=OUT)
    assert fetch(node("a", 1), name, 0) is None
    assert fetch(node("a", 0), name, 0) is None
    fetch.close()
