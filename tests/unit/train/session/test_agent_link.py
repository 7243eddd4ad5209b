"""The worker's end of the agent's socket."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from elasticd.channel.worker import Attached, Beat, Dump, Stacks
from elasticd.errors import EnvironmentProblem
from elasticd.records.ids import Generation
from elasticd.train.session.agent_link import AgentLink
from tests.fixtures.patience import patience_s

PATIENCE_S = patience_s(20.0)
"""Only a bound for a hang."""


@contextmanager
def listening(name: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind("\0" + name)
        server.listen()
        yield server


def test_link_carries_lines_both_ways(tmp_path: object) -> None:
    with listening(f"elasticd-link-{id(tmp_path)}") as server:
        link = AgentLink(f"elasticd-link-{id(tmp_path)}")
        agent, _ = server.accept()
        link.send(Attached(pid=1))
        assert agent.recv(1000) == b'["Attached", {"pid": 1}]\n'
        agent.sendall(b'["Dump", {}]\n["Lea')
        agent.close()
        assert list(link.messages()) == [Dump()]
        link.close()


def test_link_to_an_agent_that_does_not_read_keeps_what_matters(tmp_path: object) -> None:
    """News is dropped when the socket is full, the rest goes on in whole lines and in order."""
    with listening(f"elasticd-slow-{id(tmp_path)}") as server:
        link = AgentLink(f"elasticd-slow-{id(tmp_path)}")
        agent, _ = server.accept()
        beat = Beat(generation=Generation(1), step=1, step_s=0, batches=1, sequence=1)
        for _ in range(20_000):
            link.send(beat, is_news=True)
        link.send(Stacks(text="x" * 16_000))
        agent.settimeout(PATIENCE_S)
        with agent.makefile("rb") as lines:
            while b"Stacks" not in (line := lines.readline()):
                assert line.endswith(b"\n") and b"Beat" in line
                link.send(beat, is_news=True)
        link.close()
        agent.close()


def test_link_without_an_agent_says_what_to_do() -> None:
    with pytest.raises(EnvironmentProblem, match="elasticd run"):
        AgentLink("elasticd-nobody-listens-here")
