"""What stands in etcd about the autoscaling of one job, put together for reading. Pure.

A record that this version cannot read is named and left out: whoever looks at a job must see the
rest of it, also while a newer autoscaler sizes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from elasticd.errors import NotSupported
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import Policy
from elasticd.records.codec import decode
from elasticd.records.ids import JobName
from elasticd.records.keys import Keys

__all__ = ["Autoscaling", "autoscaling"]

R = TypeVar("R", Policy, Curve, Memory)
DECISIONS_KEPT = 2048
"""For those who read again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """The policy of a job, and what the autoscaler wrote about it."""

    policy: Policy | None = None
    """None: it has none, or not any more."""
    curve: Curve | None = None
    memory: Memory | None = None
    decisions: tuple[Decision, ...] = ()
    """In the order of their numbers."""
    trouble: str = ""
    """Which record cannot be read, and why; empty: all of them can."""


def autoscaling(
    values: Mapping[str, bytes], keys: Keys, job: JobName, uid: str
) -> Autoscaling | None:
    """Put it together; None where nothing was ever written for this job.

    `values`: the records under `jobs/<job>/` by their keys. Records of an earlier job of the same
    name, which have another `uid`, count for nothing.
    """
    troubles: list[str] = []
    policy = _record(Policy, values.get(keys.policy(job)), uid, troubles)
    curve = _record(Curve, values.get(keys.curve(job)), uid, troubles)
    memory = _record(Memory, values.get(keys.autoscaler_memory(job)), uid, troubles)
    prefix = keys.decisions(job)
    decisions = []
    for key in sorted(key for key in values if key.startswith(prefix)):
        try:
            decision = _decision(values[key])
        except NotSupported as exc:
            troubles.append(str(exc))
            continue
        if decision.uid == uid:
            decisions.append(decision)
    if not any((policy, curve, memory, decisions, troubles)):
        return None
    return Autoscaling(
        policy=policy,
        curve=curve,
        memory=memory,
        decisions=tuple(decisions),
        trouble=troubles[0] if troubles else "",
    )


@lru_cache(DECISIONS_KEPT)
def _decision(value: bytes) -> Decision:
    """Most stay as they were from one reading to the next, and reading takes 0.1 ms each."""
    return decode(Decision, value)


def _record(kind: type[R], value: bytes | None, uid: str, troubles: list[str]) -> R | None:
    if value is None:
        return None
    try:
        record = decode(kind, value)
    except NotSupported as exc:
        troubles.append(str(exc))
        return None
    return record if record.uid == uid else None
