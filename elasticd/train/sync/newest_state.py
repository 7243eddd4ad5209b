"""Which rank has the newest clean state, and which ranks lack it.

`choose_source` is pure: it takes the reports and returns the decision. The exchange costs each rank
one write and one read of the generation's store, and rank 0 one read of all reports. Nothing here
is a collective, because a rank whose model differs would break one. In the ordinary recovery all
ranks are clean at one position; then the decision names no targets, and nothing is hashed or
copied.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self

from elasticd.errors import CallError, ElasticdError
from elasticd.tensors.tree import first_difference
from elasticd.train.process_group.group import GroupBroken

__all__ = [
    "SourceDecision",
    "RankReport",
    "StateLost",
    "StructureDiffers",
    "agree_on_source",
    "choose_source",
]

CommitPosition = tuple[int, int]
"""The steps and the epochs as of a rank's last commit."""

_DECISION = "elasticd/agree/decision"
_NAMES_LIMIT = 20


class StateLost(ElasticdError):
    """No rank has the state of the last commit, nor one that could stand in for it."""


class ScriptDiffers(CallError):
    """The script builds another state on each rank: it can train in no world."""

    ends_job = True


class StructureDiffers(ElasticdError):
    """These ranks were built otherwise than the rank whose structure counts."""

    def __init__(self, reference: int, odd: tuple[int, ...], *, is_first: bool) -> None:
        super().__init__(
            f"The state of {_named(odd)} differs in structure from rank {reference}'s."
        )
        self.reference = reference
        self.odd = odd
        self.is_first = is_first
        """True if no rank has trained yet."""


class ReportedState(Protocol):
    """The properties of a state of which a rank makes its report; `State` has them."""

    @property
    def position(self) -> CommitPosition: ...
    @property
    def is_clean(self) -> bool: ...
    @property
    def is_new(self) -> bool: ...
    @property
    def has_stepped(self) -> bool: ...
    def structure(self) -> tuple[str, ...]: ...


class AgreementGroup(Protocol):
    """The methods of a process group that the ranks' agreement needs."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def store(self) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """The state that one rank reports to the others: its position, and whether it can be used."""

    rank: int
    position: CommitPosition
    is_clean: bool
    is_new: bool
    """True for a process that never had the job's state, or has at most parts of it, which it
    cannot give to another rank; its other fields do not count."""
    has_stepped: bool
    structure_hash: str
    node: int = 0
    """The number of the rank's node in this world."""
    run: int = 0
    """The run of the checkpoints (`Snapshot.run`); 0 if this process does not know it."""
    can_restore: bool = False
    """True if there are checkpoints to go back to."""
    snapshot_interval: int = 1
    """How many steps lay between two snapshots in memory; 1 if this process does not know it."""
    lineage: int = 0
    """The newest generation that was formed with this rank. A rank that was away may have applied a
    step that the others have not, while they applied another one in its place. Of two states at one
    position that of the newer generation counts."""

    @classmethod
    def of(
        cls,
        rank: int,
        state: ReportedState,
        *,
        lineage: int = 0,
        node: int = 0,
        run: int = 0,
        can_restore: bool = False,
        is_sharded: bool = False,
        snapshot_interval: int = 1,
    ) -> Self:
        return cls(
            rank=rank,
            lineage=lineage,
            node=node,
            run=run,
            can_restore=can_restore,
            snapshot_interval=snapshot_interval,
            position=state.position,
            is_clean=state.is_clean,
            is_new=state.is_new or is_sharded,
            has_stepped=state.has_stepped,
            structure_hash=hashlib.blake2b(
                "\n".join(state.structure()).encode(), digest_size=16
            ).hexdigest(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDecision:
    """The position from which all ranks go on, and which ranks give the state and which take it."""

    position: CommitPosition
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    is_fresh: bool = False
    """True if no rank has a state: it is to be restored, or the training begins."""
    nodes: tuple[int, ...] = ()
    """The number of each rank's node, in the order of the ranks."""
    run: int = 0
    """The run of the checkpoints (`Snapshot.run`); 0 if no rank knows it yet."""
    snapshot_interval: int = 1
    """How many steps lay between two snapshots in memory; 1 if no rank knows it."""
    note: str = ""
    """A sentence for people; empty if nothing is remarkable."""


def choose_source(reports: Sequence[RankReport]) -> SourceDecision:
    """Decide from the reports of all ranks.

    Raises:
        StructureDiffers: ranks were built differently.
        StateLost: nobody has a state to go on from.
    """
    ranks = tuple(sorted(report.rank for report in reports))
    old = [report for report in reports if not report.is_new]
    clean = [report for report in old if report.is_clean]
    stepped = [report for report in old if report.has_stepped and not report.is_clean]
    note = ""
    # A rank that has stepped beyond a commit is not behind the ranks that are clean at that commit.
    # But a rank that was away for several commits is clean too, at an older position: if it is the
    # only clean one, it must not take all others back there.
    ahead = max((each.position for each in stepped), default=None)
    if clean and (ahead is None or max(each.position for each in clean) >= ahead):
        position, lineage = max((report.position, report.lineage) for report in clean)
        newest = [each for each in clean if each.position == position]
        sources = tuple(sorted(each.rank for each in newest if each.lineage == lineage))
    elif stepped:
        position = max(report.position for report in stepped)
        sources = (min(each.rank for each in stepped if each.position == position),)
        note = (
            f"No rank had the state of a commit; all go on from rank {sources[0]}, whose optimizer "
            f"had finished the step after {position[0]}. The samples of that step count once, but "
            "the model may have seen them twice."
        )
    elif old and not all(each.can_restore for each in reports):
        raise StateLost(
            f"No rank has a state to go on from: {_named(tuple(each.rank for each in old))} lost "
            "theirs inside of an optimizer's step, or while the script had other parameters in "
            "their place. Start the job again from its newest snapshot."
        )
    else:
        position, sources = min(reports, key=lambda each: each.rank).position, (ranks[0],)
    _check_structure(reports, sources[0], is_first=not old)
    return SourceDecision(
        position=position,
        sources=sources,
        targets=tuple(rank for rank in ranks if rank not in sources),
        is_fresh=not clean and not stepped,
        nodes=tuple(report.node for report in sorted(reports, key=lambda each: each.rank)),
        run=max(report.run for report in reports),
        snapshot_interval=max(report.snapshot_interval for report in reports),
        note=note,
    )


def agree_on_source(
    group: AgreementGroup, report: RankReport, structure: Sequence[str]
) -> SourceDecision:
    """Exchange reports over the group's store; every rank returns the same decision.

    Raises:
        CallError: this rank's state is built otherwise than others'; names what differs.
        GroupBroken: another rank's state is built otherwise than others', so this world cannot
            train.
        StateLost: as `choose_source`.
    """
    store = group.store
    if group.size == 1:
        return choose_source([report])
    store.set(_report_key(report.rank), json.dumps(_news(report)))
    if group.rank == 0:
        texts = store.multi_get([_report_key(rank) for rank in range(group.size)])
        store.set(_DECISION, json.dumps(_decided([_report(text) for text in texts])))
    values = json.loads(store.get(_DECISION))
    if "lost" in values:
        raise StateLost(values["lost"])
    if "odd" in values:
        found = StructureDiffers(
            values["reference"], tuple(values["odd"]), is_first=bool(values["is_first"])
        )
        raise _difference(group, found, structure)
    return SourceDecision(
        position=(values["position"][0], values["position"][1]),
        sources=tuple(values["sources"]),
        targets=tuple(values["targets"]),
        is_fresh=bool(values["is_fresh"]),
        nodes=tuple(values["nodes"]),
        run=values["run"],
        snapshot_interval=values.get("snapshot_interval", 1),  # Rank 0 may be of an older version.
        note=values["note"],
    )


def _check_structure(reports: Sequence[RankReport], source: int, *, is_first: bool) -> None:
    """Compare with the source's structure or, before any rank has state, with the most common."""
    hashes = {report.rank: report.structure_hash for report in reports}
    if len(set(hashes.values())) == 1:
        return
    rule = hashes[source]
    if is_first:
        counts = Counter(hashes.values())
        # In a tie the one that the lowest rank has.
        rule = max((hashes[rank] for rank in sorted(hashes)), key=lambda one: counts[one])
    reference = min(rank for rank, one in hashes.items() if one == rule)
    odd = tuple(sorted(rank for rank, one in hashes.items() if one != rule))
    raise StructureDiffers(reference, odd, is_first=is_first)


def _decided(reports: Sequence[RankReport]) -> dict[str, Any]:
    try:
        return _plain(choose_source(reports))
    except StructureDiffers as exc:
        return {"reference": exc.reference, "odd": exc.odd, "is_first": exc.is_first}
    except StateLost as exc:
        return {"lost": str(exc)}


def _difference(
    group: AgreementGroup, found: StructureDiffers, structure: Sequence[str]
) -> ElasticdError:
    """Return the error that names the first line that differs.

    The ranks exchange the lines only here, once their hashes have differed.
    """
    key = f"elasticd/agree/structure/{found.reference}"
    if group.rank == found.reference:
        group.store.set(key, json.dumps(list(structure)))
    if group.rank not in found.odd:
        return GroupBroken(str(found))
    theirs = json.loads(group.store.get(key))
    names = (f"rank {group.rank}", f"rank {found.reference}")
    # Before anybody has trained it is a bug of the script; later, this node has something old, and
    # the others go on without it.
    kind = ScriptDiffers if found.is_first else CallError
    return kind(
        f"The state of {names[0]} differs from that of {names[1]}: "
        f"{first_difference(structure, theirs, names=names)} Build the same model and optimizers "
        "on each rank, and give each the same data."
    )


def _plain(record: RankReport | SourceDecision) -> dict[str, Any]:
    return {name: getattr(record, name) for name in type(record).__slots__}


def _news(report: RankReport) -> dict[str, Any]:
    """Return the fields of a report that differ from their defaults.

    So ranks of a version that does not know a field yet read the reports that do without it.
    """
    return {
        each.name: value
        for each in fields(report)
        if (value := getattr(report, each.name)) != each.default
    }


def _report(text: bytes) -> RankReport:
    """Read a rank's report; leave out the fields that this version does not know.

    Nodes are upgraded one after the other, so a report may come from a newer version.
    """
    values = {name: each for name, each in json.loads(text).items() if name in RankReport.__slots__}
    return RankReport(**{**values, "position": (values["position"][0], values["position"][1])})


def _report_key(rank: int) -> str:
    return f"elasticd/agree/report/{rank}"


def _named(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in sorted(ranks)[:_NAMES_LIMIT])
    more = f" and {len(ranks) - _NAMES_LIMIT} more" if len(ranks) > _NAMES_LIMIT else ""
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {shown}{more}"
