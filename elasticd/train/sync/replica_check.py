"""Compares the replicas, and names what differs and the rank that has drifted off.

All that elasticd does relies on equal replicas: a rank that is lost gets another one's state, and a
checkpoint is put together from all. No class name and no tensor tells that a script sums up no
gradients, or trains another expert on each rank. So the ranks compare, soon after a generation has
begun and ever more seldom; with `--compare-every` as often as was asked for, and then bit for bit.
Otherwise a difference that rounding may have made is only said: two kinds of processor make it.

What is compared is what optimizers own, and nothing else: the statistics of BatchNorm, say, may
differ between ranks. Nobody waits: a rank leaves a digest in the generation's store as it commits,
rank 0 looks at later commits whether all are there, and the others read its verdict as late. Only
after digests have differed the ranks also measure how far they are apart.

Rejected: a collective of its own (each would be counted, and could break), the beats (they are read
by the agents, which know no parameters).
"""

import json
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from elasticd.errors import CallError, ElasticdError
from elasticd.tensors.fingerprint import (
    Measure,
    comparable,
    digest,
    is_near,
    is_row_major,
    measured,
)

__all__ = [
    "ReplicaCheck",
    "ReplicaDiffers",
    "ReplicaVerdict",
    "ScriptDiverges",
    "judge",
    "outlier_ranks",
]

SELDOM = 1024
"""The commits between two comparisons in the long run. Before, they are made after 1, 2, 4, 8
..."""

_OPEN_LIMIT = 8
"""Comparisons without a verdict; of ranks that do not wait for each other one may be far ahead."""

_NAMES_LIMIT = 3

_Measures = dict[str, Measure]


class ReplicaDiffers(ElasticdError):
    """This rank's parameters are not those of the others: its process must not go on."""


class ScriptDiverges(CallError):
    """Each rank trains parameters of its own: no rank can stand in for another."""

    ends_job = True


class ReplicaStore(Protocol):
    """The methods of a generation's store that the comparison uses."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def multi_get(self, keys: list[str], /) -> list[bytes]: ...
    def check(self, keys: list[str], /) -> bool: ...
    def add(self, key: str, amount: int, /) -> int: ...
    def delete_key(self, key: str, /) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaVerdict:
    """The result of rank 0's comparison of the replicas, as it stands in the store."""

    odd: Sequence[int] = ()
    """Ranks that differ from most others."""
    names: Sequence[str] = ()
    """The names of tensors that differ, the most different first."""
    count: int = 0
    """How many tensors differ."""
    is_split: bool = False
    """Most are not alike, so that nobody is right."""
    is_rounding: bool = False
    is_to_measure: bool = False
    """Bits differ, and it is not known by how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Posted:
    """The digest, and if asked for the measures, that one rank wrote to the store."""

    digests: Mapping[str, str]
    """The digests, by the ranks that have the same elements; "" is all ranks."""
    rows: Mapping[str, str] = field(default_factory=dict)
    """The same whatever the order in memory; empty from a rank of an older version."""
    measures: Mapping[str, _Measures] = field(default_factory=dict)
    """The measures, by the same keys; empty unless the ranks were asked to measure."""


class ReplicaCheck:
    """The comparisons of one generation. A difference raises on the rank whose fault it is."""

    def __init__(
        self,
        store: ReplicaStore,
        *,
        rank: int,
        size: int,
        step: int,
        every: int,
        tensors: Callable[[], Mapping[str, torch.Tensor]],
        is_over: Callable[[], bool],
    ) -> None:
        """`is_over` tells that the generation has ended, and its store with it."""
        self._store = store
        self._rank = rank
        self._size = size
        self._first = self._seen = step
        self._every = every
        self._tensors, self._is_over = tensors, is_over
        self._open: deque[int] = deque()
        self._measures = self._has_said = False

    def compare(self, step: int) -> None:
        """Post this commit's digest if its turn has come, and look for the verdicts on others.

        The end of an epoch is a commit of the same step, and is not compared again.

        Raises:
            ReplicaDiffers: this rank is one of the few that differ from the many.
            ScriptDiverges: most differ, as rank 0 has found.
        """
        if step == self._seen:
            return
        self._seen = step
        # torch writes a page to the worker's log for each word that a store does not take.
        if self._open and not self._is_over():
            # If the store went with its node, a collective will tell.
            with suppress(RuntimeError, OSError):
                self._take_verdicts()
        if self._is_turn(step) and not self._is_over():
            text = self._text()
            with suppress(RuntimeError, OSError):
                self._post(step, text)

    def _is_turn(self, step: int) -> bool:
        count = step - self._first
        is_early = count & (count - 1) == 0
        return is_early or count % SELDOM == 0 or (self._every > 0 and step % self._every == 0)

    def _text(self) -> str:
        whole, parts = comparable(self._tensors())
        groups = {"": whole, "; ".join(parts): parts} if parts else {"": whole}
        digests = {key: digest(each) for key, each in groups.items()}
        plain = {
            "digests": digests,
            "rows": {
                key: digests[key] if is_row_major(each.values()) else digest(each, by_rows=True)
                for key, each in groups.items()
            },
            "measures": {
                key: {name: (each.total, each.length) for name, each in measured(tensors).items()}
                for key, tensors in groups.items()
                if self._measures
            },
        }
        return json.dumps(plain)

    def _post(self, step: int, text: str) -> None:
        self._store.set(_key(step, self._rank), text)
        self._open.append(step)
        if len(self._open) > _OPEN_LIMIT:
            self._store.delete_key(_key(self._open.popleft(), self._rank))

    def _take_verdicts(self) -> None:
        while self._open:
            step = self._open[0]
            key = _key(step, "verdict")
            if self._rank == 0:
                keys = [_key(step, rank) for rank in range(self._size)]
                if not self._store.check(keys):
                    return
                posted = [_read(text) for text in self._store.multi_get(keys)]
                verdict = judge(posted, is_exact=self._every > 0)
                plain = {name: getattr(verdict, name) for name in ReplicaVerdict.__slots__}
                self._store.set(key, json.dumps(plain))
            elif self._store.check([key]):
                fields = json.loads(self._store.get(key))
                known = ReplicaVerdict.__slots__  # Rank 0 may be of a newer version.
                verdict = ReplicaVerdict(**{name: fields[name] for name in known if name in fields})
            else:
                return
            self._open.popleft()
            self._store.delete_key(_key(step, self._rank))
            # The last reader deletes the verdict: the store is rank 0's memory.
            if self._store.add(f"{key}/read", 1) == self._size:
                self._store.delete_key(key)
                self._store.delete_key(f"{key}/read")
            self._obey(step, verdict)

    def _obey(self, step: int, verdict: ReplicaVerdict) -> None:
        self._measures |= verdict.is_to_measure
        if verdict.is_split:
            if self._rank == 0:
                raise ScriptDiverges(_diverges(step, verdict))
        elif self._rank in verdict.odd:
            raise ReplicaDiffers(_differs(step, verdict, self._size))
        elif verdict.is_rounding and self._rank == 0 and not self._has_said:
            self._has_said = True
            sys.stderr.write(
                f"elasticd: at step {step} the ranks' parameters differ in their last bits "
                f"({_named(verdict)}), as on different kinds of processors; training goes on.\n"
            )


def judge(posted: Sequence[_Posted], *, is_exact: bool) -> ReplicaVerdict:
    """Return which ranks differ. With `is_exact` one bit is a difference."""
    odd: set[int] = set()
    is_split = False
    has_rows = all(each.rows for each in posted)
    prints = [each.rows if has_rows else each.digests for each in posted]
    for group in dict.fromkeys(key for each in prints for key in each):
        members = [rank for rank, each in enumerate(prints) if group in each]
        others = outlier_ranks([prints[rank][group] for rank in members])
        odd |= {members[place] for place in others}
        is_split |= 2 * len(others) >= len(members)
    if not odd or (is_exact and not is_split):
        return ReplicaVerdict(odd=sorted(odd))
    if not all(each.measures for each in posted):
        return ReplicaVerdict(is_to_measure=True)
    found = _measured_verdict(posted)
    return replace(found, odd=sorted(odd)) if is_exact and found.is_rounding else found


def _measured_verdict(posted: Sequence[_Posted]) -> ReplicaVerdict:
    odd: set[int] = set()
    is_split = False
    near: list[str] = []
    far: dict[str, float] = {}
    for group in dict.fromkeys(key for each in posted for key in each.measures):
        members = [rank for rank, each in enumerate(posted) if group in each.measures]
        tables = [posted[rank].measures[group] for rank in members]
        others: set[int] = set()
        for name in dict.fromkeys(name for table in tables for name in table):
            found = [table.get(name) for table in tables]
            most = Counter(found).most_common(1)[0][0]
            unlike = {i for i, each in enumerate(found) if not _is_near(each, most)}
            if unlike:
                worst = max(_distance(found[i], most) for i in unlike)
                far[f"{name} of rank {members[min(unlike)]}"] = worst
                others |= unlike
            elif len(set(found)) > 1:
                near.append(name)
        odd |= {members[place] for place in others}
        is_split |= 2 * len(others) >= len(members)
    if not odd:
        return ReplicaVerdict(is_rounding=True, names=near[:_NAMES_LIMIT], count=len(near))
    names = sorted(far, key=lambda name: -far[name])
    return ReplicaVerdict(
        odd=sorted(odd), names=names[:_NAMES_LIMIT], count=len(names), is_split=is_split
    )


def outlier_ranks(fingerprints: Iterable[str]) -> list[int]:
    """Return the ranks that do not have the most frequent digest; in a tie rank 0's counts."""
    prints = list(fingerprints)
    counts = Counter(prints)
    most = max(prints, key=lambda one: (counts[one], one == prints[0]))
    return [rank for rank, one in enumerate(prints) if one != most]


def _is_near(one: Measure | None, other: Measure | None) -> bool:
    return one == other if one is None or other is None else is_near(one, other)


def _distance(one: Measure | None, other: Measure | None) -> float:
    if one is None or other is None:
        return float("inf")
    return abs(one.total - other.total) / (max(one.length, other.length) or 1.0)


def _differs(step: int, verdict: ReplicaVerdict, size: int) -> str:
    ranks = ", ".join(f"rank {rank}" for rank in verdict.odd)
    what = f" ({_named(verdict)})" if verdict.names else ""
    return (
        f"At step {step} the parameters of {ranks} differ from those of the other "
        f"{size - len(verdict.odd)} of {size} ranks{what}, which should be equal: look for code "
        "that changes parameters on one rank only, for operations that are not deterministic, or "
        "for faulty memory in that machine."
    )


def _diverges(step: int, verdict: ReplicaVerdict) -> str:
    return (
        f"At step {step} the ranks have trained different parameters: {_named(verdict)} differs "
        "from that of other ranks. A rank that is lost gets a copy of another one's, so all must "
        "be alike: sum up the gradients of all ranks (wrap the model in DistributedDataParallel). "
        "Where each rank means to have parameters of its own (local experts, stages of a "
        "pipeline), leave out elasticd.run and let the script save and load by itself. "
        "If all went well for long, one machine may have faulty memory. `--compare-every 0` "
        "switches the comparison off."
    )


def _named(verdict: ReplicaVerdict) -> str:
    more = verdict.count - len(verdict.names)
    return ", ".join(verdict.names) + (f" and {more} more" if more > 0 else "")


def _read(text: bytes) -> _Posted:
    fields: dict[str, Any] = json.loads(text)
    return _Posted(
        digests=fields["digests"],
        rows=fields.get("rows", {}),
        measures={
            group: {name: Measure(*values) for name, values in table.items()}
            for group, table in fields["measures"].items()
        },
    )


def _key(step: int, of: object) -> str:
    return f"elasticd/replica/{step}/{of}"
