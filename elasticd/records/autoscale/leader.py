"""The record of which autoscaler or operator leads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Leader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The record that the leading autoscaler or operator writes under its lease, for people."""

    name: str
    """`host:pid`."""
    token: str
    """A text unique to the process, which shows whose election it was if an answer got lost."""
    version: str = ""
    """The version of elasticd."""
    since_unix_s: float = 0.0
    """The begin, by its own clock."""
    source: str = ""
    """What answers the queries of policies: `prometheus` or `agents`; empty if nothing does, or if
    an older version leads, which does not say. Of an operator, which Kubernetes cluster it is of:
    `kubernetes/<uid of kube-system>/`."""
    unknown: Mapping[str, object] = field(default_factory=dict)
