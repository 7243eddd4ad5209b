"""Which steps of which generation stand: the one history of the weights. Pure.

Each generation says from how many applied steps it began, its base. What an older generation did
beyond that base is discarded; what it did up to there stands, whoever wrote it down. So going
through the generations in order gives, for every step that counts, the one generation that made
it. A step is *committed* when every rank of its generation applied it, or when a later generation
began from it or from a later one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chaos.history.records import Applied, Entered, History, Took

__all__ = ["Lineage", "Round", "trace"]


@dataclass(slots=True, kw_only=True)
class Round:
    """One generation, as its ranks lived it."""

    generation: int
    size: int = 0
    entered: dict[int, Entered] = field(default_factory=dict)
    """What each rank said when it entered."""
    took: dict[int, dict[int, Took]] = field(default_factory=dict)
    """The share that each rank took of each step, by step and rank."""
    applied: dict[int, dict[int, Applied]] = field(default_factory=dict)

    def is_taken(self, step: int) -> bool:
        """Return whether every rank had its share of the step: others can have finished it."""
        return len(self.took.get(step, ())) == self.size

    def is_committed(self, step: int) -> bool:
        """Return whether every rank applied it."""
        return len(self.applied.get(step, ())) == self.size

    @property
    def base(self) -> int:
        """Applied steps that it began from; all ranks say the same, or `wrong` says so."""
        return min(entered.step for entered in self.entered.values())


@dataclass(slots=True, kw_only=True)
class Lineage:
    rounds: list[Round]
    """The rounds of all generations that somebody entered, in order."""
    steps: dict[int, Round] = field(default_factory=dict)
    """Each committed step, and who made it."""
    discarded: list[tuple[int, int]] = field(default_factory=list)
    """Generation and number of steps that a rank had applied and that were done again."""
    undone: list[tuple[int, int]] = field(default_factory=list)
    """The same for steps that all ranks had applied: these must not be lost."""
    taken_back: dict[int, int] = field(default_factory=dict)
    """How many steps each generation took back that a rank had applied; those alone that did."""
    starts_over: list[int] = field(default_factory=list)
    """Generations that began from nothing although steps were committed."""
    wrong: list[str] = field(default_factory=list)
    """Contradictions, in words."""


def trace(history: History) -> Lineage:
    """Follow the state through the generations."""
    rounds = _rounds(history)
    lineage = Lineage(rounds=[rounds[number] for number in sorted(rounds)])
    lineage.rounds = [each for each in lineage.rounds if each.entered]
    for number in sorted(rounds):
        if not rounds[number].entered:
            lineage.wrong.append(f"generation {number} made steps and nobody entered it")
    line: dict[int, Round] = {}
    for each in lineage.rounds:
        _check_base(each, line, lineage)
        _discard(each, line, lineage)
        for step in sorted(each.applied.keys() | each.took.keys()):
            if step > each.base and (step in each.applied or each.is_taken(step)):
                line[step] = each
    lineage.steps = dict(_standing(line, lineage.rounds))
    return lineage


def _rounds(history: History) -> dict[int, Round]:
    rounds: dict[int, Round] = {}

    def of(generation: int) -> Round:
        return rounds.setdefault(generation, Round(generation=generation))

    for entered in history.entered:
        each = of(entered.generation)
        each.entered.setdefault(entered.rank, entered)
        each.size = max(each.size, entered.size)
    for took in history.took:
        each = of(took.generation)
        each.took.setdefault(took.step, {}).setdefault(took.rank, took)
        each.size = max(each.size, took.size)
    for applied in history.applied:
        of(applied.generation).applied.setdefault(applied.step, {}).setdefault(
            applied.rank, applied
        )
    return rounds


def _check_base(each: Round, line: Mapping[int, Round], lineage: Lineage) -> None:
    bases = {entered.step for entered in each.entered.values()}
    if len(bases) > 1:
        lineage.wrong.append(f"ranks of generation {each.generation} began from steps {bases}")
    newest = max(line, default=0)
    if each.base > newest:
        lineage.wrong.append(
            f"generation {each.generation} began from step {each.base}, but nobody had made more "
            f"than {newest}"
        )


def _discard(each: Round, line: dict[int, Round], lineage: Lineage) -> None:
    """Take back what the generation does not begin from."""
    dropped = sorted(step for step in line if step > each.base)
    if each.base == 0 and any(line[step].is_committed(step) for step in dropped):
        lineage.starts_over.append(each.generation)
    for step in dropped:
        maker = line.pop(step)
        if step in maker.applied:
            lineage.taken_back[each.generation] = lineage.taken_back.get(each.generation, 0) + 1
            lineage.discarded.append((maker.generation, step))
        if maker.is_committed(step):
            lineage.undone.append((maker.generation, step))


def _standing(line: Mapping[int, Round], rounds: list[Round]) -> Iterable[tuple[int, Round]]:
    """Leave out what the last generation had not finished."""
    last = rounds[-1] if rounds else None
    for step in sorted(line):
        maker = line[step]
        if maker is not last or maker.is_committed(step):
            yield step, maker
