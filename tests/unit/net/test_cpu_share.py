"""Answers take no more of a processor than they may, and a burst of them is not slowed down."""

import socket
import threading
import time

import pytest

from elasticd.net import cpu_share
from elasticd.net.cpu_share import BURST_S, DEBT_MOST_S, CpuShare
from tests.unit.net.test_http_server import (
    PATIENCE_S,
    Answers,
    asked,
    connected,
    served,
)


class Clock:
    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(cpu_share, "time", clock)
    return clock


def test_who_overdraws_waits_until_it_is_paid(clock: Clock) -> None:
    share = CpuShare(0.2)
    assert share.spend(0.2 * BURST_S) == 0.0
    assert share.spend(0.1) == pytest.approx(0.5)
    assert share.spend(0.1) == pytest.approx(1.0)
    clock.now_s += 0.75
    assert share.spend(0.0) == pytest.approx(0.25)


def test_what_is_saved_has_a_limit(clock: Clock) -> None:
    """A day in which nobody asked pays for no hour of a processor."""
    share = CpuShare(0.5)
    clock.now_s += 86_400.0
    assert share.spend(0.5 * BURST_S) == 0.0
    assert share.spend(0.5) == pytest.approx(1.0)


def test_a_client_that_asks_without_a_pause_is_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """By as much as its answers cost too much; the processor time is measured, not the other."""
    monkeypatch.setattr(cpu_share, "BURST_S", 0.0)
    monkeypatch.setattr(cpu_share, "DEBT_MOST_S", 1000.0)  # One answer may cost a collection.
    share = 0.05
    with served(cpu_share=share) as server:
        spent: list[float] = []
        spend = server.spend

        def spied(cpu_s: float) -> None:
            spent.append(cpu_s)
            spend(cpu_s)

        monkeypatch.setattr(server, "spend", spied)
        client, began_s = connected(server), time.monotonic()
        for _ in range(30):
            assert asked(client) == b"xx"
        took_s = time.monotonic() - began_s
        client.close()
    assert took_s >= sum(spent[:29]) / share - took_s * 0.05


def test_nobody_waits_for_ever_for_one_answer(clock: Clock) -> None:
    """A bundle may take a processor for a minute, and scrapes go on."""
    share = CpuShare(0.2)
    share.spend(60.0)
    assert share.owed_s() == pytest.approx(DEBT_MOST_S)
    clock.now_s += DEBT_MOST_S
    assert share.owed_s() == 0.0


def test_who_opens_a_connection_for_each_request_is_slowed_down_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_share, "BURST_S", 0.0)
    with served(cpu_share=0.01) as server:
        owed: list[float] = []
        owed_s = server.owed_s

        def spied() -> float:
            owed.append(owed_s())
            return owed[-1]

        monkeypatch.setattr(server, "owed_s", spied)
        began_s = time.monotonic()
        for _ in range(10):
            client = connected(server)
            assert asked(client) == b"xx"
            client.close()
        took_s = time.monotonic() - began_s
    assert sum(owed) > 0.0
    assert took_s >= sum(owed)


def test_a_probe_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for its answer nor for a place: all are taken by clients that have to wait."""
    monkeypatch.setattr(Answers, "urgent_paths", frozenset({"/probe"}))
    monkeypatch.setattr(cpu_share, "DEBT_MOST_S", 1000.0)
    monkeypatch.setattr("elasticd.net.http_server.PLACE_S", PATIENCE_S)
    with served(connections=2, cpu_share=1e-6) as server:
        held, are_held = server.holds, threading.Semaphore(0)

        def spied(connection: socket.socket) -> None:
            held(connection)
            are_held.release()

        monkeypatch.setattr(server, "holds", spied)
        clients = [connected(server), connected(server)]
        assert asked(clients[0]) == b"xx"
        for client in clients:
            client.request("GET", "/")
            assert are_held.acquire(timeout=PATIENCE_S)
        probe = connected(server)
        assert asked(probe, "/probe") == b"xx"
        for client in (*clients, probe):
            client.close()


def test_a_refusal_goes_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does the end of a connection that is closed after its answer."""
    monkeypatch.setattr(cpu_share, "DEBT_MOST_S", 100.0 * PATIENCE_S)
    with served(cpu_share=1e-6) as server:
        client = connected(server)
        assert asked(client) == b"xx"
        client.request("DELETE", "/")
        began_s = time.monotonic()
        assert client.getresponse().status == 405
        client.close()
    assert time.monotonic() - began_s < 50.0 * PATIENCE_S, "what it owes is waited for"
