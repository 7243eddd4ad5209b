"""States and the ways from one to another, as a table that the code obeys and the docs print.

Whoever holds a state asks its table before each change: a way that is not in the table is a bug of
ours, and it is found where it happens, not by what follows. docs/states.md is written from the
tables by `make picture`, so it cannot name a way that the code does not have.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from elasticd.errors import InvariantBroken

__all__ = ["Transitions"]

S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transitions(Generic[S]):
    """The states of one kind of thing, and which may follow which."""

    of: str
    """The thing that has these states, for messages and the page."""
    meanings: Mapping[S, str]
    """What each state is, in one sentence; it has all states, in the order of the page."""
    begins: Mapping[S, str]
    """The states in which the thing can begin, with what makes it."""
    ways: Mapping[tuple[S, S], str]
    """Each legal transition, from and to, with what makes it happen."""
    ends: Mapping[S, str]
    """The states in which the thing can cease to exist, with what makes it."""

    def step(self, old: S, new: S) -> S:
        """Return `new` if it may follow `old`; to stay in a state is always legal.

        Raises:
            InvariantBroken: the table has no such way.
        """
        if new is not old and (old, new) not in self.ways:
            raise InvariantBroken(f"{self.of} cannot go from {old} to {new}.")
        return new
