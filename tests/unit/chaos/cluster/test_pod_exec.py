"""An exec over a WebSocket: what a program printed, and in which ways it can fail."""

import base64
import hashlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes import client

from chaos.cluster import pod_exec
from chaos.cluster.pod_exec import NotStarted, PodExec
from chaos.error import ChaosError
from tests.fixtures.ports import free_port

KEY = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3.
DONE = json.dumps({"status": "Success"}).encode()


class ExecServer:
    """Answers one exec with these frames, each the number of a stream and what it carries."""

    def __init__(self, frames: Sequence[tuple[int, bytes]], *, code: int = 101) -> None:
        self.head = ""
        self._frames, self._code = frames, code
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10.0)

    def _serve(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        with peer:
            while "\r\n\r\n" not in self.head:
                self.head += peer.recv(65536).decode()
            if self._code != 101:
                peer.sendall(f"HTTP/1.1 {self._code} No\r\nContent-Length: 0\r\n\r\n".encode())
                return
            (key,) = (
                line.partition(": ")[2]
                for line in self.head.splitlines()
                if line.startswith("Sec-WebSocket-Key: ")
            )
            accepted = base64.b64encode(hashlib.sha1((key + KEY).encode()).digest()).decode()
            peer.sendall(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Accept: {accepted}\r\n"
                "Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n".encode()
            )
            for stream, data in self._frames:
                whole = bytes([stream]) + data
                peer.sendall(bytes([0x82, 126]) + len(whole).to_bytes(2, "big") + whole)
            while self._frames and peer.recv(65536):
                pass  # Until the other side hangs up.


@pytest.fixture
def servers() -> Iterator[list[ExecServer]]:
    opened: list[ExecServer] = []
    yield opened
    for server in opened:
        server.close()


def asked(server: ExecServer, *command: str) -> str:
    return asked_at(server.port, *command)


def asked_at(port: int, *command: str) -> str:
    settings = client.Configuration()
    settings.host = f"http://127.0.0.1:{port}"
    settings.api_key = {"authorization": "Bearer abc"}
    return PodExec(settings, "elasticd").run("agent-1", "agent", command)


def test_what_a_program_printed_is_returned(servers: list[ExecServer]) -> None:
    """Cut anywhere; and it is asked for with the account's token, word by word."""
    server = ExecServer([(1, b""), (1, b'{"wor'), (1, b'kers": []}\n'), (3, DONE)])
    servers.append(server)
    assert asked(server, "python3", "-c", "a & b\n") == '{"workers": []}\n'
    url = urlsplit(server.head.split()[1])
    assert url.path == "/api/v1/namespaces/elasticd/pods/agent-1/exec"
    query = parse_qs(url.query)
    assert query["command"] == ["python3", "-c", "a & b\n"] and query["container"] == ["agent"]
    assert "Authorization: Bearer abc" in server.head


def test_a_program_that_fails_is_told_in_a_sentence(servers: list[ExecServer]) -> None:
    failed = json.dumps({"status": "Failure", "message": "exit code 1"}).encode()
    servers.append(ExecServer([(2, b"python3: not found\n"), (3, failed)]))
    with pytest.raises(ChaosError, match="agent-1 ended with an error: python3: not found"):
        asked(servers[0], "python3")


@pytest.mark.parametrize("code", [403, 404, 500])
def test_a_server_that_refuses_is_told_in_a_sentence(servers: list[ExecServer], code: int) -> None:
    """Nothing was started then."""
    servers.append(ExecServer([], code=code))
    with pytest.raises(NotStarted, match=rf"can be run in pod agent-1: .*{code}"):
        asked(servers[0], "x")


def test_a_server_that_is_not_there_has_started_nothing() -> None:
    """Its port refuses the connection."""
    with pytest.raises(NotStarted, match="can be run in pod agent-1"):
        asked_at(free_port(), "x")


def test_a_connection_that_ends_is_no_success(servers: list[ExecServer]) -> None:
    servers.append(ExecServer([]))
    with pytest.raises(ChaosError) as raised:
        asked(servers[0], "x")
    assert not isinstance(raised.value, NotStarted), "it may have done its work"


def test_a_program_that_does_not_end_is_not_waited_for(
    servers: list[ExecServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_exec, "ANSWER_S", 0.05)
    servers.append(ExecServer([(1, b"begun")]))
    with pytest.raises(ChaosError, match="did not end"):
        asked(servers[0], "x")
