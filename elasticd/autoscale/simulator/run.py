"""Runs a scaler through a scenario, one evaluation after the other."""

from dataclasses import replace
from typing import Protocol

from elasticd.autoscale.curve.window import Measuring
from elasticd.autoscale.decide import Decided, decide
from elasticd.autoscale.evaluation_input import Observation, QueryReading
from elasticd.autoscale.simulator.job import SimulatedJob
from elasticd.autoscale.simulator.readings import Metrics
from elasticd.autoscale.simulator.scenario import JobScenario
from elasticd.autoscale.simulator.trace import Trace, TracePoint
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision
from elasticd.records.autoscale.memory import Memory, shifted
from elasticd.records.autoscale.policy import Policy
from elasticd.records.codec import decode, encode

__all__ = ["EPOCH_S", "Answers", "Autoscaler", "Scaler", "simulate"]

UID = "simulated"
EPOCH_S = 1.0
"""The wall clock at the beginning; 0 would mean that a time is not known."""


class Scaler(Protocol):
    """The port of the simulation to the code that sets the job's size."""

    @property
    def window_s(self) -> float:
        """Return the least part of a generation that one measurement needs, in seconds."""
        ...

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Return the decisions, with the outcomes that are known."""
        ...

    @property
    def held(self) -> str:
        """Return the reason why the scaler changed nothing at the last evaluation."""
        ...

    def wish(self, seen: Observation) -> int | None:
        """Return the size to want from now on; None to keep the last one."""
        ...

    def restart(self, seen: Observation) -> None:
        """Simulate that the scaler is killed at this evaluation, before a write, and restarts."""
        ...


class Autoscaler:
    """The shipped autoscaler, with the records that would be in etcd."""

    def __init__(self, policy: Policy, curve: Curve | None = None) -> None:
        self._policy = policy
        self._curve = curve or Curve(uid=UID)
        self._memory = Memory(uid=UID)
        self._decisions: dict[int, Decision] = {}
        self._clock_s = 0.0
        self._lives = 0
        self.held = ""
        self.decided: Decided | None = None

    @property
    def window_s(self) -> float:
        return self._policy.window_s

    @property
    def curve(self) -> Curve:
        """Return the curve of the measurements until now."""
        return self._curve

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(self._decisions.values())

    def wish(self, seen: Observation) -> int | None:
        found = self._decide(seen)
        self._memory, self._curve, self.held, self.decided = (
            found.memory,
            found.curve,
            found.held,
            found,
        )
        for decision in (found.closed, found.decision):
            if decision is not None:
                self._decisions[decision.number] = decision
        return found.wanted

    def restart(self, seen: Observation) -> None:
        self._decide(seen)  # It decides, and is killed before the write.
        self._lives += 1
        self._curve = decode(Curve, encode(self._curve))
        self._memory = decode(Memory, encode(self._memory))
        # The next process's clock started at another time.
        self._clock_s = 1024.0 * self._lives - seen.now_s
        self._memory = shifted(self._memory, seen.now_s + self._clock_s)

    def _decide(self, seen: Observation) -> Decided:
        opened = self._decisions.get(self._memory.open_decision)
        on_its_clock = replace(seen, now_s=seen.now_s + self._clock_s)
        return decide(self._policy, self._curve, self._memory, opened, on_its_clock)


class Answers(Protocol):
    """The answers of the policy's queries."""

    def read(self, now_s: float, nodes: int, steps: float) -> dict[str, QueryReading]:
        """Return the answers by name, for this many nodes and steps."""
        ...


def simulate(scenario: JobScenario, scaler: Scaler, answers: Answers | None = None) -> Trace:
    """Return the trace of the job with this scaler; without `answers`, `Metrics` gives them."""
    job = SimulatedJob(scenario, scaler.window_s)
    metrics = answers if answers is not None else Metrics(scenario)
    points = []
    kills = sorted(at_s for fault in scenario.faults for at_s in fault.handovers_s)
    for number in range(1, int(scenario.duration_s / scenario.every_s) + 1):
        job.advance(number * scenario.every_s)
        points.append(_point(job, scaler.held))
        seen = _seen(job, metrics, scenario)
        if kills and job.now_s >= kills[0]:
            kills.pop(0)
            scaler.restart(seen)
            job.measuring = Measuring()
            continue
        wish = scaler.wish(seen)
        if wish is not None:
            job.wanted = wish
        job.follow()
    return Trace(
        name=scenario.name,
        points=tuple(points),
        decisions=scaler.decisions,
        steps=job.steps,
        node_hours=job.node_s / 3600.0,
    )


def _point(job: SimulatedJob, held: str) -> TracePoint:
    return TracePoint(
        at_s=job.now_s,
        nodes=job.nodes,
        wanted=job.wanted,
        available=job.available,
        rate=job.rate,
        held=held,
    )


def _seen(job: SimulatedJob, metrics: Answers, scenario: JobScenario) -> Observation:
    windows, costs_s = job.take()
    return Observation(
        job=scenario.name,
        uid=UID,
        now_s=job.now_s,
        unix_s=EPOCH_S + job.now_s,
        min_nodes=scenario.min_nodes,
        max_nodes=scenario.max_nodes,
        nodes=job.nodes,
        wanted=job.wanted,
        is_running=job.nodes > 0,
        is_in_process=True,
        generation=job.generation,
        available=job.available,
        step=int(job.steps),
        is_paused=scenario.is_paused_at(job.now_s),
        data_share=job.data_share,
        used_node_hours=job.node_s / 3600.0,
        windows=windows,
        has_full_window=job.measuring.windows > 0,
        change_cost_s=costs_s,
        readings=metrics.read(job.now_s, job.nodes, job.steps),
    )
