"""The queue between the feeders and the owner."""

from threading import Thread

import pytest

from elasticd_agent import inbox as module
from elasticd_agent.inbox import Inbox


def test_a_feeder_does_not_wait_for_ever_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold the lock of a watch that the owner closes at this moment."""
    monkeypatch.setattr(module, "LIMIT", 1)
    monkeypatch.setattr(module, "WAIT_S", 0.0)
    inbox = Inbox()
    done: list[str] = []

    def feed() -> None:
        for name in ("a", "b", "c"):
            inbox.put(lambda name=name: done.append(name))  # type: ignore[misc]

    feeder = Thread(target=feed)
    feeder.start()
    feeder.join(30.0)
    assert not feeder.is_alive()
    while (item := inbox.take(0.0)) is not None:
        item()
    assert done == ["a", "b", "c"]
