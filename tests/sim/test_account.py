"""The account of slots over random schedules: whatever happens, the causes add up."""

import math
from collections.abc import Callable

import pytest

from elasticd.goodput.cause import TimeCause
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.effect import Effect
from elasticd_agent.account.job_account import JobAccount
from tests.sim import in_process_schedule, schedule
from tests.sim.agent import Agent
from tests.sim.simulation import Simulation

FIRST, COUNT = 3_000_000, 40


class Auditor:
    """Adds up on its own how long each agent held slots: the number of slots times the time."""

    def __init__(self) -> None:
        self.accounts: dict[int, JobAccount] = {}
        self._held_s: dict[int, float] = {}
        self._at_s: dict[int, float] = {}
        self._agents: list[Agent] = []

    def heard(self, agent: Agent, event: ev.Event) -> None:
        assert agent.state is not None
        number, now_s = id(agent), agent._clock.now_s
        if number not in self.accounts:
            self._agents.append(agent)  # So that no other gets its id.
            self.accounts[number] = JobAccount(agent.state.spec)
            self._held_s[number], self._at_s[number] = 0.0, now_s
        account = self.accounts[number]
        self._held_s[number] += len(account.account.slots) * (now_s - self._at_s[number])
        self._at_s[number] = now_s
        before = account.account.counted(now_s)
        account.follow(event, agent.state, now_s)
        after = account.account.counted(now_s)
        assert all(after.get(cause, 0.0) >= seconds - 1e-9 for cause, seconds in before.items())

    def audit(self) -> dict[TimeCause, float]:
        """See that all adds up; return the seconds of all agents."""
        found: dict[TimeCause, float] = {}
        for number, account in self.accounts.items():
            seconds = account.account.seconds(self._at_s[number])
            assert math.isclose(sum(seconds.values()), self._held_s[number], abs_tol=1e-6)
            assert all(value >= 0.0 for value in seconds.values())
            for cause, value in seconds.items():
                found[cause] = found.get(cause, 0.0) + value
        return found


@pytest.fixture
def auditors(monkeypatch: pytest.MonkeyPatch) -> list[Auditor]:
    """One that listens to each simulation that is played."""
    found: list[Auditor] = []
    played: list[Simulation] = []
    decided = Simulation.decided

    def heard(self: Simulation, agent: Agent, event: ev.Event, effects: tuple[Effect, ...]) -> None:
        if not played or played[-1] is not self:
            played[:] = [self]
            found.append(Auditor())
        found[-1].heard(agent, event)
        decided(self, agent, event, effects)

    monkeypatch.setattr(Simulation, "decided", heard)
    return found


@pytest.mark.parametrize("play", [schedule.play, in_process_schedule.play])
def test_the_causes_of_each_agent_add_up_whatever_happens(
    auditors: list[Auditor], play: Callable[[int], object]
) -> None:
    spent: dict[TimeCause, float] = {}
    for seed in range(FIRST, FIRST + COUNT):
        play(seed)
        for auditor in auditors:
            for cause, seconds in auditor.audit().items():
                spent[cause] = spent.get(cause, 0.0) + seconds
        auditors.clear()
    assert TimeCause.UNEXPLAINED not in spent
    assert {TimeCause.TRAIN, TimeCause.START, TimeCause.RECOVER, TimeCause.WAIT} <= spent.keys()
