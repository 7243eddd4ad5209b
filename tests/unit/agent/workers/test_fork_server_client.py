"""What an agent asks of a fork server that others have started."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pytest

from elasticd.channel.fork_server import FORK, ForkOrder, ServerReady
from elasticd.channel.wire import pack
from elasticd_agent.workers.fork_server_client import ForkServerClient
from tests.fixtures.captured_log import captured_log
from tests.fixtures.pool import PATIENCE_S, ChildrenOfTest

ORDER = ForkOrder(job="j", env={}, surroundings={}, folder="/")


class Listener:
    """Says that it is ready, and notes the first that it is asked."""

    def __init__(self, path: str) -> None:
        self.path, self.asked = path, b"not yet"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(PATIENCE_S)
        self._socket.bind(path)
        self._socket.listen()
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        client, _ = self._socket.accept()
        with client:
            client.settimeout(PATIENCE_S)
            self.asked = b""
            with suppress(OSError):  # It has hung up.
                client.sendmsg([pack(ServerReady(import_s=0.0))], [], socket.MSG_NOSIGNAL)
                self.asked, fds, _, _ = socket.recv_fds(client, 100, 9)
                for fd in fds:
                    os.close(fd)


@pytest.fixture
def listener() -> Iterator[Listener]:
    with TemporaryDirectory(dir="/tmp") as folder:  # A path that fits a socket.
        made = Listener(f"{folder}/s")
        yield made
        made.join()


@pytest.mark.parametrize("is_ours", [True, False])
def test_server_of_another_user_is_asked_nothing(
    listener: Listener, is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be given the job's environment. The pool is a program then, and the log says why."""
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own if is_ours else own + 1)
    client = ForkServerClient(
        children=ChildrenOfTest(), env={}, log_path=Path(os.devnull), path=listener.path
    )
    with captured_log() as logged:
        assert client.fork(ORDER, 2, 2, lambda: True) is None
    listener.join()
    assert listener.asked == (FORK if is_ours else b"")
    (said,) = (each for each in logged if each["event"] == "fork_server.given_up")
    assert ("another user" in said["why"]) is not is_ours
    client.close()
