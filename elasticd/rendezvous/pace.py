"""How long the workers need until a planned change is due."""

from elasticd.records.world import World
from elasticd.rendezvous.state import Pace

__all__ = ["due_in_s"]

_MARGIN = 3.0
"""Added because steps differ in length, and the ranks may agree on one step more than the world
names."""


def due_in_s(pace: Pace | None, world: World) -> float:
    """Return how long it may take, without faults, until this world's `at_step` is made.

    0 if that is not known, or if the world begins at once.
    """
    if pace is None or world.at_step is None:
        return 0.0
    return _MARGIN * max(1, world.at_step + 1 - pace.step) * pace.step_s
