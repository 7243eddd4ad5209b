"""The names of things, as types, and what they may look like."""

import re
from collections.abc import Sequence
from typing import NewType

from elasticd.errors import CallError

__all__ = [
    "Generation",
    "Incarnation",
    "JobName",
    "Life",
    "NodeId",
    "Nonce",
    "Rank",
    "Slot",
    "checked_name",
    "incarnation_of",
    "life_of",
    "names",
]

NodeId = NewType("NodeId", str)
"""A machine; the name is stable across restarts of its agent."""

Incarnation = NewType("Incarnation", str)
"""One life of a node's membership; a returning node has a new one. It is compared for equality
only."""

Life = NewType("Life", str)
"""One process of an agent; all its incarnations begin with it."""

JobName = NewType("JobName", str)
Generation = NewType("Generation", int)
"""The number of the world; 0 means that there was none yet."""

Rank = NewType("Rank", int)
Slot = NewType("Slot", int)
"""A place on a node for one worker; the device follows it."""

Nonce = NewType("Nonce", int)
"""The number of processes that a slot has had: (node, incarnation, slot, nonce) is one worker."""

_SHOWN = 5
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def incarnation_of(life: Life, count: int) -> Incarnation:
    """Return the `count`-th incarnation of one agent process."""
    return Incarnation(f"{life}.{count}")


def life_of(incarnation: Incarnation) -> Life:
    return Life(incarnation.partition(".")[0])


def names(nodes: Sequence[NodeId]) -> str:
    """Return a list of nodes for people, which stays short."""
    shown = ", ".join(nodes[:_SHOWN])
    return f"{shown} and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else shown


def checked_name(kind: str, value: str) -> str:
    """Return `value` if it can be a key segment and a folder name.

    Raises:
        CallError: names with other characters, too long or empty.
    """
    if _NAME.fullmatch(value) is None:
        raise CallError(
            f"{kind} {value!r} is not usable as a name: take 1 to 63 letters, digits, '.', '_' or "
            "'-', beginning and ending with a letter or digit."
        )
    return value
