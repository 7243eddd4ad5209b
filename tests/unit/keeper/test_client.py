"""A worker's end, with keepers that are late, talk nonsense, or die while they are asked."""

import gc
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Thread
from weakref import ref

import pytest

from elasticd.checkpoint.format.json_read import Damaged
from elasticd.errors import ElasticdError, EnvironmentProblem, InvariantBroken, Unavailable
from elasticd.keeper.client import Client
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.wire import message as ms
from elasticd.keeper.wire.line import KeeperConnection
from tests.fixtures.open_files import open_files, wait_until_closed
from tests.fixtures.store import wait_until
from tests.unit.keeper.site import PATIENCE_S

Script = Callable[[KeeperConnection], None]


class Keeper:
    """A process that does what a test says with each connection, one after the other."""

    def __init__(self, script: Script) -> None:
        self.name = f"elasticd-test-{secrets.token_hex(8)}"
        self._script = script
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + self.name)
        self._listener.listen(8)
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            line = KeeperConnection(sock, ms.QUESTIONS)
            with suppress(EOFError, OSError):
                self._script(line)
            line.close()


@pytest.fixture
def keepers() -> Iterator[Callable[[Script], str]]:
    made: list[Keeper] = []

    def make(script: Script) -> str:
        made.append(Keeper(script))
        return made[-1].name

    yield make
    for each in made:
        each.close()


Make = Callable[[Script], str]


def answering(*answers: object, file: bool = False) -> Script:
    """Each question gets the next of these, with a file of 10 bytes if wanted."""

    def script(line: KeeperConnection) -> None:
        memory = SharedMemory.new(10)
        for answer in answers:
            _, files = line.receive()
            assert not files
            line.send(answer, [memory.file] if file else [])
        line.receive()

    return script


def test_nobody_there_is_told_in_one_sentence() -> None:
    """With the place to look at; and nothing stays open of the tries."""
    before = open_files()
    with pytest.raises(Unavailable, match=r"does not answer .*: see agents/\*.keeper.log"):
        Client(f"elasticd-test-{secrets.token_hex(8)}", limit_s=0.05)
    wait_until_closed(before)


def test_answers_and_errors_come_back(keepers: Make) -> None:
    """Each error as what it was; one of an unknown kind is an error too."""
    failed = [ms.Failed(kind=kind, why="So.") for kind in ("Damaged", "EnvironmentProblem", "No")]
    client = Client(keepers(answering(ms.Opened(run=3), *failed)))
    question = ms.Open(generation=1, step=0)
    assert client.ask(question, ms.Opened, timeout_s=PATIENCE_S).run == 3
    for kind in (Damaged, EnvironmentProblem, ElasticdError):
        with pytest.raises(kind, match=r"^So\.$"):
            client.ask(question, ms.Opened, timeout_s=PATIENCE_S)
    client.close()


def test_files_are_closed_on_every_path(keepers: Make) -> None:
    """Wanted, not wanted, with an error, with another answer, or owed: a hundred rounds each."""
    failed, shared = ms.Failed(kind="Unavailable", why="So."), ms.Shared(size=10)
    client = Client(keepers(answering(*[shared, shared, failed, shared, ms.Done()] * 100,
                                      file=True)))  # fmt: skip
    before = None
    for number in range(100):
        _, memory = client.ask_memory(ms.Read(number=1), ms.Shared, timeout_s=PATIENCE_S)
        assert memory is not None and memory.size == 10
        del memory
        client.ask(ms.Read(number=1), ms.Shared, timeout_s=PATIENCE_S)
        with pytest.raises(Unavailable, match="So"):
            client.ask(ms.Read(number=1), ms.Shared, timeout_s=PATIENCE_S)
        with pytest.raises(InvariantBroken, match="answered Shared"):
            client.ask_memory(ms.Read(number=1), ms.Done, timeout_s=PATIENCE_S)
        client.ask(ms.Plans(plans=()), ms.Done, timeout_s=PATIENCE_S)
        if number % 25 == 0:  # To count is slow: it collects garbage first.
            if before is None:
                before = open_files()
            wait_until_closed(before)
    assert before is not None
    wait_until_closed(before)
    client.close()


def test_answer_that_comes_late_is_not_taken_for_anothers(keepers: Make) -> None:
    """Who was silent for too long is not asked again on the same connection."""
    asked, go_on = Event(), Event()

    def script(line: KeeperConnection) -> None:
        line.receive()
        asked.set()
        assert go_on.wait(PATIENCE_S)
        line.send(ms.Opened(run=1))

    name = keepers(script)
    client = Client(name)
    with pytest.raises(Unavailable, match="has gone"):
        client.ask(ms.Open(generation=1, step=0), ms.Opened, timeout_s=0.05)
    assert asked.wait(PATIENCE_S)
    go_on.set()
    with pytest.raises(Unavailable, match="has gone"):
        client.ask(ms.Open(generation=2, step=0), ms.Opened, timeout_s=PATIENCE_S)
    client.close()


def test_keeper_that_dies_while_asked_is_told_in_one_sentence(keepers: Make) -> None:
    """Before its answer, within it, or with garbage instead of one; the connection is closed."""

    def dies(line: KeeperConnection) -> None:
        line.receive()

    def half(line: KeeperConnection) -> None:
        line.receive()
        line.socket.sendall(b"\x50\0\0\0\0\0\0\0[")

    def garbage(line: KeeperConnection) -> None:
        line.receive()
        line.socket.sendall(b"HTTP/1.1 200 OK\r\n\r\n" * 5)

    for script in (dies, half, garbage):
        client = Client(keepers(script))
        before = open_files()
        with pytest.raises(Unavailable) as caught:
            client.ask(ms.GetStatus(), ms.Status, timeout_s=PATIENCE_S)
        assert str(caught.value).startswith("The process that keeps this node's checkpoints has")
        assert "\n" not in str(caught.value)
        # The keeper's thread may have begun and ended its own end of it meanwhile.
        wait_until(lambda before=before: open_files() < before)  # type: ignore[misc]
        with pytest.raises(Unavailable):
            client.send(ms.GetStatus(), timeout_s=PATIENCE_S)


def test_what_was_told_is_settled_before_the_next_question(keepers: Make) -> None:
    """The first error of it is raised instead; afterwards question and answer fit again."""
    wrong = [ms.Failed(kind="EnvironmentProblem", why=why) for why in ("First.", "Second.")]
    client = Client(keepers(answering(ms.Done(), *wrong, ms.Opened(run=7))))
    for _ in range(3):
        client.send(ms.GetStatus(), timeout_s=PATIENCE_S)
    with pytest.raises(EnvironmentProblem, match="First"):
        client.ask(ms.Open(generation=1, step=0), ms.Opened, timeout_s=PATIENCE_S)
    asked = client.ask(ms.Open(generation=1, step=0), ms.Opened, timeout_s=PATIENCE_S)
    assert asked.run == 7
    client.close()


def test_several_threads_get_each_its_own_answer(keepers: Make) -> None:
    """One asks at a time."""

    def script(line: KeeperConnection) -> None:
        while True:
            question, _ = line.receive()
            line.send(ms.Opened(run=question.generation))

    client = Client(keepers(script))
    wrong: list[int] = []

    def ask(first: int) -> None:
        for number in range(first, first + 100):
            question = ms.Open(generation=number, step=0)
            run = client.ask(question, ms.Opened, timeout_s=PATIENCE_S).run
            wrong.extend([number] * (run != number))

    threads = [Thread(target=ask, args=(first,)) for first in (0, 1000, 2000)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
    client.close()


def test_worker_loads_nothing_of_a_keepers_own() -> None:
    """Each worker of each generation imports this module before its first step."""
    script = (
        "import sys, elasticd.keeper.client; "
        "print([n for n in ('prometheus_client', 'structlog') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_client_that_nobody_uses_any_more_is_freed(keepers: Make) -> None:
    """A worker makes one for each keeper that was started anew, and for each next node's."""
    name = keepers(answering())
    client = Client(name)
    gone = ref(client)
    client.close()
    del client
    gc.collect()
    assert gone() is None


def test_process_that_is_forked_shares_no_connection() -> None:
    """Two processes that read one connection would each get a part of an answer."""
    script = """
import os, socket
from elasticd.keeper.client import Client
name = f"elasticd-test-fork-{os.getpid()}"
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(chr(0) + name)
listener.listen(8)
clients = [Client(name), Client(name)]
child = os.fork()
if not child:
    os._exit(sum(each._line.socket.fileno() != -1 for each in clients))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")
