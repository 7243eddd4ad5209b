"""What happens in one simulated run: drawn from a seed, and judged at its end."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec, Limits
from elasticd.records.reason import Phase
from tests.sim.fault import FAULTS
from tests.sim.history import Broken
from tests.sim.network import Weather
from tests.sim.simulation import Simulation
from tests.sim.training import Bug

__all__ = [
    "LIVENESS_S",
    "LONG_GRACE_S",
    "Faults",
    "Outcome",
    "drawn_weather",
    "judged",
    "play",
    "spec_of",
]

LIVENESS_S = 260.0
"""After the last fault: the slow re-read (60 s), the longest readmission delay (60 s), twice the
isolation limit with its margin, and some formations with a deadline each."""


LONG_GRACE_S = 8.0
"""Above the margin that rule 4 adds to the isolation limit: no grace may outlive that."""

Faults = list[tuple[float, str]]
"""(when, which)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    phase: Phase | None
    generations: int
    faults: tuple[str, ...]
    virtual_s: float
    decisions: int


def spec_of(**values: object) -> JobSpec:
    """A spec with short times, so that a run is a few virtual seconds."""
    base: dict[str, object] = {
        "name": JobName("job"),
        "uid": "u1",
        "entry_kind": EntryKind.SCRIPT,
        "entry": "train.py",
        "min_nodes": 1,
        "max_nodes": 1,
        "shutdown_timeout_s": 2.0,
        "failure_timeout_s": 0.5,
        "formation_timeout_s": 4.0,
        "first_window_s": 3.0,
        "isolation_limit_s": 10.0,
        "limits": Limits(user_error=-1, node_loss=-1),
    }
    return JobSpec(**{**base, **values})  # type: ignore[arg-type]


def play(seed: int, trace: Callable[[str], None] | None = None) -> Outcome:
    """Play the schedule of one seed.

    Raises:
        Broken: a safety rule was broken, or the job did not end in time; the seed is in the text.
    """
    rng = Random(seed ^ 0x5EED)
    sim, faults = _drawn(seed, rng, trace)
    return judged(seed, sim, faults)


def judged(
    seed: int,
    sim: Simulation,
    faults: Faults,
    at_end: Callable[[], None] = lambda: None,
) -> Outcome:
    """Play it to its end, and say what became of it; `at_end` may raise as well.

    Raises:
        Broken: as `play`.
    """
    is_doomed = sim.training.bug is not None
    try:
        end_s = sim.clock.now_s + max((at_s for at_s, _ in faults), default=0.0)
        sim.run(end_s - sim.clock.now_s, until=lambda: sim.is_over)
        # Every fault makes itself good at last; the longest after 25 s.
        sim.run(26.0, until=lambda: sim.is_over)
        is_ended = sim.run(LIVENESS_S, until=lambda: sim.is_over)
        status = sim.status
        if not is_ended or status is None:
            raise Broken(f"I9: the job does not end; status {status!r}")
        wanted = {Phase.FAILED if is_doomed else Phase.SUCCEEDED}
        if any(name == "stop" for _, name in faults):
            wanted.add(Phase.STOPPED)
        if status.phase not in wanted:
            raise Broken(f"the job ended {status.phase}: {status.message}, wanted {wanted}")
        _all_leave(sim)
        at_end()
    except Broken as broken:
        raise Broken(f"seed {seed}: {broken}") from broken
    except Exception as exc:
        raise Broken(f"seed {seed}: {type(exc).__name__}: {str(exc)[:3000]}") from exc
    return Outcome(
        seed=seed,
        phase=sim.status.phase if sim.status is not None else None,
        generations=len(sim.history.worlds),
        faults=tuple(name for _, name in faults),
        virtual_s=sim.clock.now_s - 100.0,
        decisions=sum(a.decisions for a in sim.agents),
    )


def _all_leave(sim: Simulation) -> None:
    """After the end nobody keeps a worker or a membership."""

    def is_quiet() -> bool:
        machines = [*sim.nodes.values(), *sim.twins]
        agents = [n.agent for n in machines if n.agent is not None]
        alive = [w for n in machines for w in n.workers.values() if w.is_alive]
        return not alive and all(a.state is None for a in agents if not a.is_stopped)

    if not sim.run(90.0, until=is_quiet):
        left = [n.agent.state for n in sim.nodes.values() if n.agent is not None and n.agent.state]
        raise Broken(f"somebody does not leave an ended job: {left!r}")


def _drawn(
    seed: int, rng: Random, trace: Callable[[str], None] | None
) -> tuple[Simulation, Faults]:
    count = rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 6, 8))
    minimum = rng.randint(1, max(1, count - 1))
    bug = None
    limits = Limits(user_error=-1, node_loss=-1)
    if rng.random() < 0.08:
        bug = Bug(after_s=rng.choice((None, 0.1)), everywhere=rng.random() < 0.5)
        limits = Limits(user_error=3, node_loss=-1)
    spec = spec_of(
        min_nodes=minimum,
        max_nodes=count if rng.random() < 0.7 else rng.randint(minimum, count),
        workers_per_node=rng.choice((0, 1)),
        limits=limits,
        shutdown_timeout_s=LONG_GRACE_S,
    )
    weather = drawn_weather(rng)
    sim = Simulation(
        seed=seed,
        spec=spec,
        slots=[rng.choice((1, 1, 2, 4)) for _ in range(count)],
        work_s=rng.choice((0.3, 1.0, 4.0, 8.0)),
        bug=bug,
        weather=weather,
        trace=trace,
    )
    sim.submit(status_delay_s=rng.choice((0.0, 0.0, 0.7)))
    for node in sim.nodes.values():
        node.pool_delay_s = (0.1, rng.choice((0.2, 1.0, 4.0)))
        late_s = rng.choice((0.0, 0.05, 0.3, 5.0)) if rng.random() < 0.5 else 0.0
        sim.clock.after(late_s + rng.uniform(0.0, 0.02), node.start_agent)
    faults: list[tuple[float, str]] = []
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 6))):
        at_s = rng.uniform(0.3, 8.0)
        name = rng.choice(sorted(FAULTS))
        faults.append((at_s, name))
        if rng.random() < 0.3:
            faults.append((at_s + rng.uniform(0.0, 0.4), rng.choice(sorted(FAULTS))))
    if bug is None and rng.random() < 0.05:
        faults.append((rng.uniform(0.2, 6.0), "stop"))
    faults.sort()
    for at_s, name in faults:
        if name == "stop":
            sim.clock.after(at_s, lambda: sim.want(is_stop=True))
        else:
            sim.clock.after(at_s, lambda n=name: _strike(sim, n, rng))  # type: ignore[misc]
    return sim, faults


def drawn_weather(rng: Random) -> Weather:
    """Half of the networks are kind."""
    if rng.random() >= 0.5:
        return Weather()
    return Weather(
        lost_answer=rng.choice((0.0, 0.05)),
        denied_answer=rng.choice((0.0, 0.03)),
        lost_event=rng.choice((0.0, 0.0, 0.03)),
        repeated_event=rng.choice((0.0, 0.1)),
        late_event=rng.choice((0.0, 0.1)),
    )


def _strike(sim: Simulation, name: str, rng: Random) -> None:
    if not sim.is_over:
        FAULTS[name](sim, rng)
