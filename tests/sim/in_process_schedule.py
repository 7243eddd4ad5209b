"""What happens in one simulated in-process run: drawn from a seed, and judged at its end.

Every third seed has nothing but planned changes: there no applied step may be lost at all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from elasticd.records.job import Limits
from elasticd.records.reason import Phase
from tests.sim.fault import FAULTS, Fault
from tests.sim.history import Broken
from tests.sim.in_process import InProcess, Script
from tests.sim.node import Node
from tests.sim.schedule import LONG_GRACE_S, Faults, Outcome, drawn_weather, judged, spec_of
from tests.sim.simulation import Simulation
from tests.sim.trainee import Trainee
from tests.sim.training import Bug
from tests.sim.worker import Raised

__all__ = ["InProcessOutcome", "play"]


@dataclass(frozen=True, slots=True)
class InProcessOutcome:
    outcome: Outcome
    lost_steps: int
    restarts: int
    """Worlds that began from nothing, after the first."""


def play(seed: int, trace: Callable[[str], None] | None = None) -> InProcessOutcome:
    """Play the schedule of one seed.

    Raises:
        Broken: a safety rule was broken, or the job did not end in time; the seed is in the text.
    """
    rng = Random(seed ^ 0xE1A5)
    is_planned = seed % 3 == 0
    sim, faults = _drawn(seed, rng, trace, is_planned=is_planned)
    job = sim.training
    assert isinstance(job, InProcess)

    def no_step_lost() -> None:
        has_waited = any(s.phase is Phase.WAITING for s in sim.history.statuses)
        # Below min there is no world to hand over to: the last step may be lost.
        if (
            is_planned
            and job.bug is None
            and not has_waited
            and (job.steps.lost or job.steps.restarts)
        ):
            raise Broken(f"planned changes cost {job.steps.lost} steps, {job.steps.restarts} all")

    outcome = judged(seed, sim, faults, no_step_lost)
    return InProcessOutcome(outcome, job.steps.lost, job.steps.restarts)


def _drawn(
    seed: int, rng: Random, trace: Callable[[str], None] | None, *, is_planned: bool
) -> tuple[Simulation, Faults]:
    count = rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 6))
    # One node more than is needed stays out of planned changes: somebody has the state.
    minimum = rng.randint(1, max(1, count - 1))
    bug, raises_at = None, None
    limits = Limits(user_error=-1, node_loss=-1)
    if rng.random() < 0.08:
        bug = Bug(after_s=rng.choice((None, 0.1)), everywhere=rng.random() < 0.5)
        limits, raises_at = Limits(user_error=3, node_loss=-1), rng.choice((0, 2))
    spec = spec_of(
        min_nodes=minimum,
        max_nodes=count if rng.random() < 0.7 else rng.randint(minimum, count),
        workers_per_node=rng.choice((0, 1)),
        limits=limits,
        progress_timeout_s=3.0,
        shutdown_timeout_s=LONG_GRACE_S,
    )
    script = Script(
        steps=rng.choice((3, 30, 100, 200)),
        step_s=rng.choice((0.01, 0.05, 0.1)),
        build_s=rng.choice(((0.05, 0.2), (0.2, 1.0), (0.5, 4.0))),
        epilogue_s=rng.choice(((0.0, 0.15), (0.0, 0.15), (0.5, 6.0))),
        raises_at=raises_at,
    )
    sim = Simulation(
        seed=seed,
        spec=spec,
        slots=[rng.choice((1, 1, 2, 4)) for _ in range(count)],
        bug=bug,
        weather=drawn_weather(rng),
        trace=trace,
        script=script,
    )
    sim.submit(status_delay_s=rng.choice((0.0, 0.0, 0.7)))
    for node in sim.nodes.values():
        node.pool_delay_s = (0.1, rng.choice((0.2, 1.0, 4.0)))
        late_s = rng.choice((0.0, 0.05, 0.3, 2.0, 5.0)) if rng.random() < 0.5 else 0.0
        sim.clock.after(late_s + rng.uniform(0.0, 0.02), node.start_agent)
    late, job = Random(seed ^ 0x1A7E), sim.training  # Its own draws: the others stay the same.
    assert isinstance(job, InProcess)
    if not is_planned and late.random() < 0.25:
        job.word_delay_s = late.uniform(*late.choice(((0.0, 0.3), (0.3, 1.5), (1.5, 4.0))))
        at_s = late.uniform(0.3, 8.0)
        sim.clock.after(at_s, lambda: _strike(sim, raises, late))
    faults: Faults = []
    known = PLANNED if is_planned else IN_PROCESS
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 6))):
        at_s = rng.uniform(0.3, 10.0)
        faults.append((at_s, rng.choice(sorted(known))))
        if rng.random() < 0.3:
            faults.append((at_s + rng.uniform(0.0, 0.4), rng.choice(sorted(known))))
    if bug is None and rng.random() < 0.05:
        faults.append((rng.uniform(0.2, 6.0), "stop"))
    faults.sort()
    for at_s, name in faults:
        if name == "stop":
            sim.clock.after(at_s, lambda: sim.want(is_stop=True))
        else:
            sim.clock.after(at_s, lambda n=name: _strike(sim, known[n], rng))  # type: ignore[misc]
    return sim, faults


def _strike(sim: Simulation, fault: Fault, rng: Random) -> None:
    if not sim.is_over:
        fault(sim, rng)


def _some_trainee(sim: Simulation, rng: Random) -> Trainee | None:
    workers = sorted(
        (w for w in sim.training.alive() if isinstance(w, Trainee) and w.is_attached),
        key=lambda w: (w.node, w.slot, w.nonce),
    )
    return rng.choice(workers) if workers else None


def freeze(sim: Simulation, rng: Random) -> None:
    """SIGSTOP of a worker: it does not even beat."""
    worker, job = _some_trainee(sim, rng), sim.training
    if worker is not None and isinstance(job, InProcess):
        sim.say(f"FAULT    freeze {worker!r}")
        job.freeze(worker)


def stall(sim: Simulation, rng: Random) -> None:
    """A worker whose script hangs outside of all collectives; it beats on."""
    worker = _some_trainee(sim, rng)
    if worker is not None and worker.is_training:
        sim.say(f"FAULT    stall {worker!r}")
        worker.is_stuck = True


def raises(sim: Simulation, rng: Random) -> None:
    """An error of the script on one rank, which its agent may hear of late."""
    worker, job = _some_trainee(sim, rng), sim.training
    if worker is not None and worker.is_training and isinstance(job, InProcess):
        sim.say(f"FAULT    {worker!r} raises, told after {job.word_delay_s:.2f}")
        job.raises(worker, Raised())


def pause(sim: Simulation, rng: Random) -> None:
    """An evaluation on all ranks."""
    job = sim.training
    assert isinstance(job, InProcess)
    for_s = rng.choice((0.5, 4.0, 12.0))
    sim.say(f"FAULT    pause at {job.steps.newest + 1} for {for_s}")
    job.pauses[job.steps.newest + 1] = for_s


def drain_one(sim: Simulation, rng: Random) -> None:
    """A drain that leaves the job enough: those that it cannot do without are never drained."""
    names = sorted(sim.nodes)[max(1, sim.spec.min_nodes) :]
    world = sim.history.worlds[-1] if sim.history.worlds else None
    staying = [
        n.node
        for n in (world.nodes if world is not None else ())
        if (agent := sim.nodes[n.node].agent) is not None and agent.goes is None
    ]
    names = [name for name in names if staying != [name]]
    if names:
        sim.drain(rng.choice(names))


def join(sim: Simulation, rng: Random) -> None:
    """A node whose daemon ended in good order comes back."""
    for node in sim.nodes.values():
        agent = node.agent
        if agent is not None and agent.state is None and agent.goes is not None:
            _begin_anew(node)
            return


def _begin_anew(node: Node) -> None:
    node.kill_agent()
    node.start_agent()


PLANNED: dict[str, Fault] = {
    "drain_one": drain_one,
    "join": join,
    "scale": FAULTS["scale"],
    "pause": pause,
}
IN_PROCESS: dict[str, Fault] = {
    **FAULTS,
    "pause": pause,
    "freeze": freeze,
    "stall": stall,
}
