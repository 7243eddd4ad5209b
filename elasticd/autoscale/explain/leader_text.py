"""A sentence about the autoscaler that leads. Pure."""

from elasticd.autoscale.explain.quantity import clock
from elasticd.records.autoscale.leader import Leader

__all__ = ["leader_sentence"]


def leader_sentence(leader: Leader | None) -> str:
    """Return which process leads and since when, or how to start one if none leads."""
    if leader is None:
        return (
            "no autoscaler leads: nothing is decided until one runs (`elasticd autoscale run`, or "
            "`elasticd run --autoscale`)"
        )
    since = f" since {clock(leader.since_unix_s, has_day=True)}" if leader.since_unix_s else ""
    version = f" (elasticd {leader.version})" if leader.version else ""
    return f"the autoscaler {leader.name} leads{since}{version}"
