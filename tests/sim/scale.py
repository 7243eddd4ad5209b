"""How the rendezvous grows: n nodes form a world, a tenth is lost at once, the rest goes on."""

import gc
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.records.world import World
from tests.sim.schedule import spec_of
from tests.sim.simulation import Simulation

__all__ = ["Figures", "measure", "slope", "table"]

LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run cost. Per member and generation: the most of any member."""

    nodes: int
    wall_s: float
    cpu_s: float
    """The same on a machine that has nothing else to do: there is one thread."""
    generations: int
    form_s: float
    """Virtual seconds from the first agent's start until all have arrived."""
    reform_s: float
    """Virtual seconds from the loss until all that are left have arrived."""
    join_writes: int
    """The most etcd writes that one member made before the first world: here, then ready."""
    writes: int
    """The most etcd writes that one member made for one generation."""
    events: int
    """The most events that an agent had which is no proposer."""
    proposer_events: int
    total_events: int


def measure(nodes: int, *, lost_share: float = 0.1, seed: int = 1) -> Figures:
    """Form a world of `nodes`, kill a share of them at once, form the next."""
    gc.collect()
    gc.disable()  # Its passes over all that lives would be most of what grows.
    try:
        return _measure(nodes, lost_share, seed)
    finally:
        gc.enable()


def _measure(nodes: int, lost_share: float, seed: int) -> Figures:
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    lost = int(nodes * lost_share)
    spec = spec_of(
        min_nodes=nodes - lost,
        max_nodes=nodes,
        join_window_s=0.2,
        first_window_s=30.0,
        formation_timeout_s=60.0,
    )
    sim = Simulation(seed=seed, spec=spec, slots=[1] * nodes, work_s=1e6)
    sim.submit()
    for node in sim.nodes.values():
        node.pool_delay_s = (0.1, 1.0)
        sim.clock.after(sim.rng.uniform(0.0, 0.5), node.start_agent)
    begin_s = sim.clock.now_s
    assert sim.run(LIMIT_S, until=lambda: _is_whole(sim)), "no world formed"
    form_s = sim.clock.now_s - begin_s
    sim.run(1.0)
    joined = sim.history.joined_writes
    first_writes = _most(sim.history.writes, joined, sim.history.worlds[-1].generation)
    before = dict(sim.history.writes)
    dead = set(sim.rng.sample(sorted(sim.nodes), lost))
    for name in sorted(dead):
        sim.nodes[name].kill_agent()
    begin_s = sim.clock.now_s
    generation = sim.history.worlds[-1].generation
    assert sim.run(
        LIMIT_S,
        until=lambda: (
            sim.history.worlds[-1].generation > generation
            and len(sim.history.worlds[-1].nodes) == nodes - lost
            and _is_whole(sim)
        ),
    ), "no second world formed"
    reform_s = sim.clock.now_s - begin_s
    sim.run(1.0)
    changes = sim.history.worlds[-1].generation - generation
    second_writes = _most(sim.history.writes, before, changes)
    agents = [a for a in sim.agents if a.is_alive]
    plain = [a.decisions for a in agents if not a.has_watched_all]
    return Figures(
        nodes=nodes,
        wall_s=time.perf_counter() - begun_s,
        cpu_s=time.process_time() - begun_cpu_s,
        generations=len(sim.history.worlds),
        form_s=form_s,
        reform_s=reform_s,
        join_writes=max(_per_member(joined).values()),
        writes=math.ceil(max(first_writes, second_writes)),
        events=max(plain),
        proposer_events=max(a.decisions for a in agents),
        total_events=sum(a.decisions for a in sim.agents),
    )


def slope(figures: Sequence[Figures]) -> float:
    """The exponent of the time in the number of nodes: least squares on both logarithms.

    Of the CPU time of the only thread: what else the machine does is not the rendezvous' cost.
    """
    xs = [math.log(f.nodes) for f in figures]
    ys = [math.log(f.cpu_s) for f in figures]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - x_mean) ** 2 for x in xs)


def table(figures: Sequence[Figures]) -> str:
    """The figures as a Markdown table, with the fit below."""
    heads = (
        "nodes",
        "generations",
        "formed after",
        "re-formed after",
        "writes to join",
        "writes per generation",
        "events of an agent",
        "of a proposer",
        "of all",
        "wall time",
        "CPU time",
    )
    rows = ["| " + " | ".join(heads) + " |", "|" + "---:|" * len(heads)]
    for f in figures:
        cells = (
            f"{f.nodes:,}",
            f"{f.generations}",
            f"{f.form_s:.2f} s",
            f"{f.reform_s:.2f} s",
            f"{f.join_writes}",
            f"{f.writes}",
            f"{f.events}",
            f"{f.proposer_events:,}",
            f"{f.total_events:,}",
            f"{f.wall_s:.2f} s",
            f"{f.cpu_s:.2f} s",
        )
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _is_whole(sim: Simulation) -> bool:
    item = sim.etcd.get("world", "")
    if item is None or not isinstance(item.value, World):
        return False
    run = sim.training.runs.get(item.value.generation)
    return run is not None and run.since_s is not None


def _per_member(writes: dict[tuple[str, str], int]) -> dict[str, int]:
    """Puts of a member's own keys, by member."""
    found: dict[str, int] = {}
    for (kind, name), count in writes.items():
        if kind in ("member", "result", "incident"):
            node = name.rpartition("/")[2]
            found[node] = found.get(node, 0) + count
    return found


def _most(
    writes: dict[tuple[str, str], int], before: dict[tuple[str, str], int], generations: int
) -> float:
    since = {key: count - before.get(key, 0) for key, count in writes.items()}
    return max(_per_member(since).values()) / generations
