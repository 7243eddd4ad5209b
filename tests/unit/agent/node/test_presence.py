"""What a node answers before it is one."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.errors import EnvironmentProblem
from elasticd.net.listener import listen
from elasticd.records.ids import NodeId
from elasticd.records.keys import Keys
from elasticd.store.api import StoreSettings, WatchSnapshot
from elasticd.store.memory import MemoryStore
from elasticd_agent.loop.inbox import Inbox
from elasticd_agent.loop.owner_watchdog import LIMIT_S
from elasticd_agent.node import presence as module
from elasticd_agent.node.presence import Presence
from elasticd_agent.settings import AgentSettings
from tests.fixtures.http_server import ask
from tests.fixtures.patience import patience_s
from tests.fixtures.ports import free_port


def settings(folder: Path, *, port: int = 0, probe_port: int = 0) -> AgentSettings:
    return AgentSettings(
        node=NodeId("a"),
        host="h",
        address="127.0.0.1",
        store=StoreSettings(endpoints=()),
        environ={},
        slots=1,
        run_folder=folder,
        http_port=port,
        probe_port=probe_port,
    )


def test_probes_are_answered_while_the_node_waits_to_be_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the lease of the agent before it: whoever probes it must not end it meanwhile."""
    monkeypatch.setattr(module, "SLOW_S", 0.05)
    presence = Presence(settings(tmp_path), MemoryStore())
    may_register, told = threading.Event(), []
    real = presence.registration.open

    def waits(peer_port: int, http_port: int) -> None:
        told.append(http_port)
        assert may_register.wait(patience_s(30.0))
        real(peer_port, http_port)

    monkeypatch.setattr(presence.registration, "open", waits)
    opening = threading.Thread(target=presence.open)
    opening.start()
    try:
        while not told:
            opening.join(0.01)
        assert ask(told[0], "/healthz")[:2] == (200, b"ok\n")
        assert ask(told[0], "/readyz")[0] == 503
        may_register.set()
        opening.join(patience_s(30.0))
        status, why = ask(told[0], "/readyz")[:2]
        assert status == 503 and b"which jobs there are" in why, "one may wait for this node"
        presence.readiness.on_jobs_listed()
        assert ask(told[0], "/readyz")[0] == 200
    finally:
        may_register.set()
        presence.close()


def test_node_whose_probe_port_is_taken_leaves_its_other_port(tmp_path: Path) -> None:
    """It is refused with the flag that chose it, and nothing is held."""
    taken = listen("127.0.0.1", 0)
    port, probe_port = free_port(), taken.getsockname()[1]
    with pytest.raises(EnvironmentProblem, match="choose another --probe-port"):
        Presence(settings(tmp_path, port=port, probe_port=probe_port), MemoryStore())
    listen("127.0.0.1", port).close()
    taken.close()


def test_owner_that_stands_still_lets_the_nodes_lease_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store asks before each keepalive; what renews it then is a thread of its own."""
    busy_s = [0.0]
    monkeypatch.setattr(Inbox, "busy_s", property(lambda inbox: busy_s[0]))
    store = MemoryStore()
    presence = Presence(settings(tmp_path), store)
    try:
        presence.open()
        (grant,) = store._grants.values()
        answers = []
        for busy_s[0] in (0.0, LIMIT_S + 1.0, 0.1):
            answers.append(grant.may_renew())
        assert answers == [True, False, True]
    finally:
        presence.close()


class Slow(MemoryStore):
    """It has so many jobs that are over that a look at them does not come to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.may_go_on = threading.Event(), threading.Event()

    def list(self, prefix: str) -> WatchSnapshot:
        if prefix == Keys().ended:
            self.is_asked.set()
            assert self.may_go_on.wait(patience_s(60.0)), "nobody let it go on"
        return super().list(prefix)


def test_records_of_jobs_that_are_over_hold_up_no_write_of_a_job(tmp_path: Path) -> None:
    """A world would else wait for this node, for each of thousands of small writes."""
    store, written = Slow(), threading.Event()
    presence = Presence(replace(settings(tmp_path), keep_ended_s=0.01), store)
    try:
        presence.open()
        assert store.is_asked.wait(patience_s(30.0))
        presence.effect_thread.send(lambda: None, lambda _: written.set(), lambda _: None)
        assert written.wait(patience_s(30.0))
    finally:
        store.may_go_on.set()
        presence.close()
