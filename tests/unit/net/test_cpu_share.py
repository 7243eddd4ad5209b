"""Answers take no more of a processor than they may, and a burst of them is not slowed down."""

import time

import pytest

from elasticd.net import cpu_share
from elasticd.net.cpu_share import BURST_S, CpuShare
from tests.unit.net.test_http_server import asked, asked_when_there_is_room, connected, served


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
    share = 0.05
    with served(cpu_share=share) as server:
        spent: list[float] = []
        spend = server.spend

        def spied(cpu_s: float) -> float:
            spent.append(cpu_s)
            return spend(cpu_s)

        monkeypatch.setattr(server, "spend", spied)
        client, began_s = connected(server), time.monotonic()
        for _ in range(30):
            assert asked(client) == b"xx"
        took_s = time.monotonic() - began_s
        client.close()
    assert took_s >= sum(spent[:29]) / share - took_s * 0.05


def test_a_client_that_waits_gives_its_place_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticd.net.http_server.IDLE_LEAST_S", 0.0)
    with served(connections=1, cpu_share=1e-6) as server:
        for _ in range(3):
            assert asked_when_there_is_room(server) == b"xx"
