"""Stacks of incidents, as pages ask for them."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from elasticd.dashboard import stacks as module
from elasticd.dashboard.collector import Collector, Opened
from elasticd.dashboard.http_server import DashboardServer
from elasticd.dashboard.stacks import StacksCache, StacksKey, StacksText
from elasticd.errors import Unavailable
from elasticd.records.ids import Generation, NodeId
from elasticd.records.job import JobSpec
from elasticd.records.member import Node
from elasticd.records.reason import Reason
from elasticd.store.memory import MemoryStore
from tests.fixtures.patience import patience_s
from tests.unit.dashboard.records_case import (
    HOSTILE,
    HUNG,
    JOB,
    SAY,
    change_world,
    filled,
    opened,
)

PATIENCE_S = patience_s(30.0)
TOKEN = "a-token-of-some-length"


class Reader:
    """Has the stacks of node-1, and cannot reach any other node."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, bool]] = []

    def __call__(
        self,
        source: Opened,
        spec: JobSpec,
        generation: Generation,
        node: NodeId,
        known: Node | None,
    ) -> str:
        self.asked.append((generation, node, known is not None))
        if node != "node-1":
            raise Unavailable(f"The stacks are on node {node}, whose agent is gone.")
        return f"in {HOSTILE}\n"


def hung() -> MemoryStore:
    """Two nodes, of which one hung in generation 1; in generation 4 nobody did."""
    store = filled()
    change_world(store, 2, Reason.WORKER_HUNG, ("node-0",), 60.0, HUNG)
    change_world(store, 4, Reason.WORKER_FAILED, ("node-0",), 120.0)
    return store


@contextmanager
def served(
    store: MemoryStore, read: Reader | None, token: str = ""
) -> Iterator[Callable[..., tuple[int, Any]]]:
    """A dashboard, as a function that asks it for stacks."""
    collector = Collector(lambda: opened(store), lambda: (), SAY, read)
    try:
        assert collector.newer_than(0, PATIENCE_S) is not None, "nothing was read"
        server = DashboardServer("127.0.0.1", 0, collector, token)
        port = int(server.url.rstrip("/").rpartition(":")[2])

        def ask(
            generation: object = 2, node: str = "", job: str = JOB, **headers: str
        ) -> tuple[int, Any]:
            path = f"/api/stacks?job={quote(job)}&generation={quote(str(generation))}"
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            connection.request("GET", f"{path}&node={quote(node)}", headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            return answer.status, json.loads(body) if body.startswith(b"{") else body.decode()

        try:
            yield ask
        finally:
            server.close()
    finally:
        collector.close()


def test_stacks_come_as_text_from_the_node_of_the_rank_that_hung() -> None:
    """Of the generation in which it hung, which is the one before; and once for all pages."""
    read = Reader()
    with served(hung(), read) as ask:
        assert ask() == (200, {"text": f"in {HOSTILE}\n", "message": ""})
        assert ask(node="node-1")[1]["text"] == f"in {HOSTILE}\n"
        assert read.asked == [(1, "node-1", True)]


def test_what_cannot_be_had_is_told_in_a_sentence() -> None:
    """It is no error of the page, so that its console stays empty."""
    with served(hung(), Reader()) as ask:
        sentence = "The stacks are on node node-0, whose agent is gone."
        assert ask(node="node-0") == (200, {"text": "", "message": sentence})


def test_where_nobody_wrote_anything_every_node_has_stacks() -> None:
    """Nobody is to blame: those of the world before are offered, the first node's first."""
    read, store = Reader(), hung()
    change_world(store, 5, Reason.NO_OUTPUT, ("node-0", "node-1"), 180.0)
    change_world(store, 6, Reason.NO_OUTPUT, ("node-1",), 240.0)
    with served(store, read) as ask:
        assert ask(6) == ask(6, "node-0")
        assert ask(6, "node-1")[1]["text"] == f"in {HOSTILE}\n"
        assert ask(6, "node-7")[0] == 404
        assert ask(5)[0] == 200
    assert read.asked == [(5, "node-0", True), (5, "node-1", True), (4, "node-0", True)]


@pytest.mark.parametrize(
    ("generation", "node", "job", "status", "words"),
    [
        (2, "", "other", 404, "There is no job 'other'."),
        (2, "", "", 404, "There is no job ''."),
        (2, "", "../../etc", 404, "There is no job '../../etc'."),
        (9, "", JOB, 404, "Job digits has no change to generation 9 (any more)."),
        (3, "", JOB, 404, "There are no stacks of the change to generation 3."),
        (4, "", JOB, 404, "There are no stacks of the change to generation 4."),
        (2, "node-7", JOB, 404, "Node 'node-7' had no part in generation 1."),
        (2, "../../etc/passwd", JOB, 404, "Node '../../etc/passwd' had no part in generation 1."),
        (2, "node-1/../node-1", JOB, 404, "Node 'node-1/../node-1' had no part in generation 1."),
        ("x", "", JOB, 400, "A generation is a number, as in generation=3."),
        ("-1", "", JOB, 400, "A generation is a number, as in generation=3."),
        ("9" * 40, "", JOB, 400, "A generation is a number, as in generation=3."),
        ("\u0663", "", JOB, 400, "A generation is a number, as in generation=3."),
        ("", "", JOB, 400, "A generation is a number, as in generation=3."),
    ],
)
def test_nothing_else_is_read(
    generation: object, node: str, job: str, status: int, words: str
) -> None:
    read = Reader()
    with served(hung(), read) as ask:
        assert ask(generation, node, job) == (status, {"message": words})
    assert read.asked == []


@pytest.mark.parametrize(
    "path",
    [
        "/runs/digits/incidents/gen-1.node-0.stacks.txt",
        "/runs/digits/incidents/gen-1.../../../private.stacks.txt",
        "/runs/digits/incidents/gen-x.node-1.stacks.txt",
        "/runs/digits/gen-1/rank-1.err",
        "",
    ],
)
def test_a_record_names_no_other_file(path: str) -> None:
    """Whatever stands in it: the name is made of the number and the node, and must agree."""
    read, store = Reader(), hung()
    change_world(store, 2, Reason.WORKER_HUNG, ("node-0",), 60.0, replace(HUNG, log_path=path))
    with served(store, read) as ask:
        assert ask()[0] == 404
    assert read.asked == []


def test_with_a_token_stacks_want_it() -> None:
    with served(hung(), Reader(), token=TOKEN) as ask:
        assert ask() == (401, "The token is wanted.\n")
        assert ask(Authorization=f"Bearer {TOKEN}")[0] == 200


def test_who_reads_no_stacks_says_that_there_are_none() -> None:
    with served(hung(), None) as ask:
        assert ask()[0] == 404


# --- what is kept ---------------------------------------------------------------------------


@pytest.fixture
def cache() -> Iterator[StacksCache]:
    made = StacksCache()
    yield made
    made.close()


def key(number: int = 1) -> StacksKey:
    return StacksKey(uid="u", generation=Generation(number), node=NodeId("b"))


def test_pages_that_ask_at_once_wait_for_one_reading(cache: StacksCache) -> None:
    """A hundred pages are no hundred questions to one agent."""
    go, count, found = threading.Event(), [0], []

    def read() -> str:
        count[0] += 1
        assert go.wait(PATIENCE_S)
        return "in f"

    pages = [
        threading.Thread(target=lambda: found.append(cache.get(key(), read))) for _ in range(8)
    ]
    for page in pages:
        page.start()
    go.set()
    for page in pages:
        page.join(PATIENCE_S)
    assert found == 8 * [StacksText(text="in f")] and count == [1]


def test_an_answer_is_kept_for_a_while_only(
    cache: StacksCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generation may get more stacks."""
    texts = iter(("in f", "in f\nin g"))
    assert cache.get(key(), lambda: next(texts)).text == "in f"
    assert cache.get(key(), lambda: next(texts)).text == "in f"
    monkeypatch.setattr(module, "FOUND_S", -1.0)
    assert cache.get(key(), lambda: next(texts)).text == "in f\nin g"


def test_of_many_readings_the_newest_are_kept(cache: StacksCache) -> None:
    """They must not fill the memory."""
    for number in range(3 * module.KEPT_LIMIT):
        assert cache.get(key(number), lambda: "in f").text == "in f"
    assert [each.generation for each in cache._kept] == list(
        range(2 * module.KEPT_LIMIT, 3 * module.KEPT_LIMIT)
    )


def test_a_bug_of_the_reading_is_said(cache: StacksCache) -> None:
    def read() -> str:
        raise KeyError("a field")

    assert cache.get(key(), read).missing == "This is a bug of elasticd: KeyError: 'a field'"
    assert cache.get(key(2), str).missing == "The file of the stacks is empty."


def test_who_waits_too_long_is_told(cache: StacksCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.05)
    go = threading.Event()
    found = cache.get(key(), lambda: str(go.wait(PATIENCE_S)))
    go.set()
    assert found.missing == "The stacks did not come in time: ask again in a moment."
