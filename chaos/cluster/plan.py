"""What is to be done at most, and what the seed draws of it."""

import random
from dataclasses import dataclass

from chaos.cluster.fault import Kind

__all__ = ["Draw", "Plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One fault, as far as it is known before it is done."""

    number: int
    kind: Kind
    place: float
    """Which of the possible victims, from 0 to below 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The limits of a run; times are in seconds."""

    kinds: tuple[Kind, ...] = tuple(Kind)
    faults: int = 5
    at_once: int = 1
    """No fault begins that would disturb more pods than this at the same time."""
    interval_s: float = 60.0
    """The least time from the begin of a fault to that of the next."""
    stop_s: float = 5.0
    """How long a worker is stopped, at most."""
    recover_s: float = 300.0
    """Within this time after a fault the job is to go on, and to have all of its nodes."""
    steps_back: int = 1
    """How many steps less than before the status may show."""
    timeout_s: float = 3600.0
    """After this time no fault begins, and the run ends."""
    seed: int = 1

    def draws(self) -> tuple[Draw, ...]:
        """Draw kinds and victims; the same seed draws the same."""
        chance = random.Random(self.seed)
        return tuple(
            Draw(number=number, kind=chance.choice(self.kinds), place=chance.random())
            for number in range(1, self.faults + 1)
        )
