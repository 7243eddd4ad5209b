"""The records in etcd about the autoscaling of one job, joined for readers. Pure.

A record that this version cannot read is named and left out: the rest of the job must stay visible,
even while a newer autoscaler sizes the job.
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
"""The number of decoded decisions in the cache, for callers that read repeatedly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """The policy of a job, and the autoscaler's records about the job."""

    policy: Policy | None = None
    """The policy; None if the job has none, or none any more."""
    curve: Curve | None = None
    memory: Memory | None = None
    uid: str = ""
    """The uid of the job's spec."""
    written: tuple[bytes, ...] = ()
    """The stored decisions in the order of their numbers. They are decoded only on request: a list
    of a hundred jobs shows almost none of their twenty thousand decisions."""
    trouble: str = ""
    """The record that cannot be read, and the reason; empty if all records can be read."""

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Return the decisions about this job that this version can read, ordered by number."""
        return self.newest(len(self.written))

    def newest(self, count: int) -> tuple[Decision, ...]:
        """Return the newest decisions, at most `count`."""
        found = (_decision(value) for value in self.written[max(0, len(self.written) - count) :])
        return tuple(each for each in found if each is not None and each.uid == self.uid)


def autoscaling(
    values: Mapping[str, bytes], keys: Keys, job: JobName, uid: str
) -> Autoscaling | None:
    """Return the autoscaler's records of this job; None if there are none.

    `values` are the records under `jobs/<job>/` by their keys. Records of an earlier job of the
    same name, which have another `uid`, do not count.
    """
    troubles: list[str] = []
    policy = _record(Policy, values.get(keys.policy(job)), uid, troubles)
    curve = _record(Curve, values.get(keys.curve(job)), uid, troubles)
    memory = _record(Memory, values.get(keys.autoscaler_memory(job)), uid, troubles)
    prefix = keys.decisions(job)
    written = tuple(values[key] for key in sorted(key for key in values if key.startswith(prefix)))
    found = Autoscaling(
        policy=policy,
        curve=curve,
        memory=memory,
        uid=uid,
        written=written,
        trouble=troubles[0] if troubles else "",
    )
    return found if any((policy, curve, memory, troubles)) or found.newest(1) else None


@lru_cache(DECISIONS_KEPT)
def _decision(value: bytes) -> Decision | None:
    """Decode a decision; return None if it is of a newer version.

    The results are cached: most decisions do not change between two readings, and decoding takes
    0.1 ms.
    """
    try:
        return decode(Decision, value)
    except NotSupported:
        return None


def _record(kind: type[R], value: bytes | None, uid: str, troubles: list[str]) -> R | None:
    if value is None:
        return None
    try:
        record = decode(kind, value)
    except NotSupported as exc:
        troubles.append(str(exc))
        return None
    return record if record.uid == uid else None
