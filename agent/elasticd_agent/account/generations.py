"""How long an agent has known each generation, and how far the job had come before it.

Two agents compare these durations, since they share no clock.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from elasticd.records.ids import Generation, Life

__all__ = ["Generations"]

KEPT = 16
"""How many generations are kept: an agent that writes less often than worlds change may be some
behind."""


class Generations:
    """Remember the newest generations by the agent's own clock."""

    def __init__(self) -> None:
        self._seen_s: dict[Generation, float] = {}
        self._ended_s: dict[Generation, float] = {}
        self._named: dict[Generation, frozenset[Life]] = {}
        self._step_before: dict[Generation, int] = {}
        """The newest step that was committed when the generation's world was first seen."""
        self._committed = -1
        """The newest committed step of the last generation that committed any; -1: none is known.
        Less than before if that generation went back."""
        self._begun = Generation(0)

    @property
    def newest(self) -> Generation:
        """The newest generation that was seen; 0 before any was."""
        return max(self._seen_s, default=Generation(0))

    def observe(self, generation: Generation, now_s: float, named: Iterable[Life] = ()) -> None:
        """Take note that a world of this generation stands, and of the agents in it."""
        if generation <= self.newest:
            return
        self._seen_s[generation] = now_s
        self._named[generation] = frozenset(named)
        self._step_before[generation] = self._committed
        while len(self._seen_s) > KEPT:
            oldest = min(self._seen_s)
            del self._seen_s[oldest]
            self._ended_s.pop(oldest, None)
            self._step_before.pop(oldest, None)
            self._named.pop(oldest, None)

    def begin(self, generation: Generation, first_step: int) -> None:
        """Take note of the first step that a generation committed."""
        if generation > self._begun:
            self._begun, self._committed = generation, first_step

    def commit(self, step: int) -> None:
        """Take note of a committed step of the generation that trains."""
        self._committed = max(self._committed, step)

    def end(self, generation: Generation, now_s: float) -> None:
        """Take note that this generation is over, and that no other world stands."""
        if generation in self._seen_s:
            self._ended_s.setdefault(generation, now_s)

    def ages_s(self, now_s: float) -> Mapping[Generation, float]:
        """Return how long ago each generation was first seen."""
        return {each: now_s - at_s for each, at_s in self._seen_s.items()}

    @property
    def began_s(self) -> Mapping[Generation, float]:
        """Return when each generation was first seen."""
        return dict(self._seen_s)

    @property
    def named(self) -> Mapping[Generation, frozenset[Life]]:
        """Return the agents of each generation."""
        return dict(self._named)

    def repeated_steps(self, generation: Generation, first_step: int) -> int:
        """Return how many committed steps a generation that commits `first_step` first does again.

        A process that is new cannot know them: so they are lost together with all who made them.
        """
        return max(0, self._step_before.get(generation, -1) - first_step + 1)

    @property
    def lasted_s(self) -> Mapping[Generation, float]:
        """Return how long each generation that is over lasted."""
        known = sorted(self._seen_s)
        next_s = {each: self._seen_s[later] for each, later in pairwise(known)}
        ends_s = {**next_s, **self._ended_s}
        return {each: end_s - self._seen_s[each] for each, end_s in ends_s.items()}
