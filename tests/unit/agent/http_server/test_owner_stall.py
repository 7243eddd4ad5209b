"""A real agent whose owner's thread stands still, asked over HTTP."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from threading import Event

import pytest

from elasticd.records.ids import NodeId
from elasticd.store.api import StoreSettings
from elasticd.store.memory import MemoryStore
from elasticd_agent.agent import Agent
from elasticd_agent.http_server.probes import BUSY_LIMIT_S
from elasticd_agent.node.presence import Presence
from elasticd_agent.settings import AgentSettings
from tests.fixtures.cluster import until
from tests.fixtures.http_server import ask
from tests.fixtures.patience import patience_s
from tests.fixtures.pool import ChildrenOfTest

WAIT_S = patience_s(60.0)


def served(presence: Presence, scene: Callable[[], None]) -> None:
    """Serve as an agent does, on this thread, while the scene is played on another."""
    agent = Agent(presence, ChildrenOfTest())

    def played() -> None:
        try:
            scene()
        finally:
            for _ in range(2):  # The second signal ends it at once.
                presence.inbox.put(lambda: agent._end("test"))

    with ThreadPoolExecutor(1) as other:
        playing = other.submit(played)
        agent.run()
        playing.result(WAIT_S)


def test_owner_that_stands_still_is_told_within_seconds_and_its_lease_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on as soon as the thing that it was at is over, and nothing has happened."""
    settings = AgentSettings(
        node=NodeId("a"),
        host="h",
        address="127.0.0.1",
        store=StoreSettings(endpoints=()),
        environ={},
        slots=1,
        run_folder=tmp_path,
    )
    store = MemoryStore()
    presence = Presence(settings, store)
    told: list[int] = []
    register = presence.registration.open

    def registers(peer_port: int, http_port: int) -> None:
        told.append(http_port)
        register(peer_port, http_port)

    monkeypatch.setattr(presence.registration, "open", registers)
    presence.open()
    stands, goes_on = Event(), Event()

    def stand() -> None:
        stands.set()
        assert goes_on.wait(WAIT_S)

    def health() -> tuple[int, bytes]:
        return ask(told[0], "/healthz")[:2]

    def scene() -> None:
        try:
            until(lambda: health() == (HTTPStatus.OK, b"ok\n"), health)
            presence.inbox.put(stand)
            assert stands.wait(WAIT_S)
            stood_s = presence.inbox.busy_s
            while (found := health())[0] == HTTPStatus.OK:
                assert stood_s <= BUSY_LIMIT_S
                stood_s = presence.inbox.busy_s
            assert found[0] == HTTPStatus.SERVICE_UNAVAILABLE
            assert presence.inbox.busy_s > BUSY_LIMIT_S
            assert b"does a disk hang?" in found[1]
            assert not presence.registration.is_fenced, "its lease is let go much later"
            goes_on.set()
            until(lambda: health() == (HTTPStatus.OK, b"ok\n"), health)
        finally:
            goes_on.set()

    try:
        served(presence, scene)
    finally:
        presence.close()
        store.close()
