"""Who may tell the event writer anything."""

import os
import socket
from unittest.mock import create_autospec

import pytest

from elasticd.tensorboard.writer import connections
from elasticd.tensorboard.writer.buffer import Buffer
from elasticd.tensorboard.writer.connections import Connections
from tests.fixtures.patience import patience_s

PATIENCE_S = patience_s(30.0)


def test_another_user_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any process of the machine can connect: the kernel says whose it is."""
    monkeypatch.setattr(connections, "LOOK_S", 0.001)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"\0elasticd-test-{os.getpid()}")
    listener.listen()
    hearing = Connections(listener, create_autospec(Buffer, instance=True))
    hearing.tell("The storage is away.")
    hearing.start()
    said = []
    for user in (os.geteuid() + 1, os.geteuid()):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(PATIENCE_S)
            client.connect(listener.getsockname())
            said.append(client.recv(100))
    monkeypatch.undo()
    hearing.close()
    listener.close()
    assert said == [b"", b"The storage is away.\n"]
