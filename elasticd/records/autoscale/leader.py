"""Which autoscaler leads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Leader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """What the autoscaler that leads writes under its lease, for people."""

    name: str
    """`host:pid`."""
    token: str
    """Unique to the process: tells after an answer that got lost whose election it was."""
    version: str = ""
    """Of elasticd."""
    since_unix_s: float = 0.0
    """By its own clock."""
    source: str = ""
    """What answers the queries of policies: `prometheus` or `agents`; empty: nothing does, or an
    older version leads, which does not tell."""
    unknown: Mapping[str, object] = field(default_factory=dict)
