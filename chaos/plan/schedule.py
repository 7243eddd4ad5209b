"""From a scenario and a seed to the list of faults. Pure: the same seed gives the same list.

A quota per kind and not a probability: a run of a thousand faults must have had its partitions,
and two runs must be comparable. The seed decides order, victims, points and waits.
"""

import random

from chaos.plan.fault import TRAITS, After, Fault, Kind, Point, Scope
from chaos.plan.scenario import Entry, Scenario

__all__ = ["draw"]

MOST_WAIT_S = 0.5
"""A step is some 30 ms: any phase of one, and of what still settles after a recovery, is hit."""
OVERLAP_S = (0.02, 0.1)
"""Recovery takes 0.1 s at best: a second fault in this time falls into it."""
REST_EVERY = 5
"""Faults after which all slots rest: one that is struck eight times without a rest is given up."""
POINTED = (Kind.WORKER_KILL, Kind.WORKER_RAISE)
POINT_SHARE = 0.5
"""The share of the kills in a random schedule that strike at a named point of the step."""


def draw(scenario: Scenario, seed: int) -> tuple[Fault, ...]:
    """Return the faults in order."""
    # Text seeds are hashed by random itself with SHA-512: stable over runs and versions.
    rng = random.Random(f"{scenario.name}/{seed}")
    entries = _drawn(scenario, rng) if scenario.random.quota else _listed(scenario)
    return tuple(
        _fault(scenario, entry, number, rng, every_s=scenario.random.every_s)
        for number, entry in enumerate(entries)
    )


def _listed(scenario: Scenario) -> list[Entry]:
    """Repeat the scenario's own list; an entry that overlaps goes with the one before it."""
    groups: list[list[Entry]] = []
    for entry in scenario.faults:
        if entry.after is After.PREVIOUS and groups:
            groups[-1].extend([entry] * entry.times)
        else:
            groups.append([entry])
    found: list[Entry] = []
    for group in groups:
        for _ in range(group[0].times):
            found.extend(group)
    return found


def _drawn(scenario: Scenario, rng: random.Random) -> list[Entry]:
    kinds = [Kind(kind) for kind, count in scenario.random.quota.items() for _ in range(count)]
    rng.shuffle(kinds)
    entries: list[Entry] = []
    restless = 0
    for number, kind in enumerate(kinds):
        is_overlap = number > 0 and rng.random() < scenario.random.overlap_share
        # Two in a row at most: a chain of overlaps may take the last copy of the state away.
        if entries and entries[-1].after is After.PREVIOUS:
            is_overlap = False
        # The same exception twice without a step between is what the job rightly ends for.
        if kind is Kind.WORKER_RAISE and entries and entries[-1].kind is kind:
            is_overlap = False
        point = Point.ANYWHERE
        if kind in POINTED and rng.random() < POINT_SHARE:
            point = rng.choice([point for point in Point if point is not Point.ANYWHERE])
        after = After.PREVIOUS if is_overlap else After.STEADY
        if after is After.STEADY and restless >= REST_EVERY:
            after, restless = After.RESTED, 0
        restless += 1
        entries.append(Entry(kind=kind, after=after, point=point))
    return entries


def _fault(
    scenario: Scenario, entry: Entry, number: int, rng: random.Random, *, every_s: float
) -> Fault:
    # Drawn in this order always, used or not: one value fixed in a scenario changes no other one.
    node = rng.randrange(scenario.site.nodes)
    worker = rng.randrange(scenario.site.workers)
    steady_s, overlap_s = rng.uniform(0.0, MOST_WAIT_S), rng.uniform(*OVERLAP_S)
    traits = TRAITS[entry.kind]
    if traits.scope is Scope.ETCD:
        node = rng.randrange(scenario.site.etcds)
    after, wait_s = entry.after, entry.wait_s
    if every_s and number:
        after, wait_s = After.PREVIOUS, every_s
    elif wait_s < 0:
        wait_s = overlap_s if after is After.PREVIOUS else steady_s
    has_amount = entry.kind in (Kind.NODE_DELAY, Kind.WORKER_SLOW)
    point = entry.point
    if entry.kind is Kind.WORKER_RAISE and point is Point.ANYWHERE:
        point = Point.BACKWARD
    return Fault(
        number=number,
        kind=entry.kind,
        after=after,
        wait_s=round(wait_s, 3),
        node=entry.node if entry.node >= 0 else node,
        worker=entry.worker if entry.worker >= 0 else worker,
        point=point,
        for_s=entry.for_s if entry.for_s >= 0 else traits.for_s,
        amount_s=entry.amount_s if has_amount else 0.0,
        recover_s=entry.recover_s if entry.recover_s >= 0 else traits.recover_s,
    )
