"""A rule's proposal: a size or none, and the reason in one sentence for people."""

from dataclasses import dataclass

from elasticd.records.autoscale.decision import Candidate, Rule

__all__ = ["Proposal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The answer of one rule in one evaluation."""

    rule: Rule
    nodes: int | None
    """The size; None if the rule has none (its inputs are missing, or it has no wish)."""
    why: str
    """The reason in one sentence, with its numbers."""
    held: str = ""
    """If there is no size: the word under which this is counted; empty if nothing is missing."""
    may_shrink: bool = True
    """False if some inputs are missing, so that only a larger size may be followed."""
    is_probe: bool = False
    was_steps_per_s: float = 0.0
    promised_steps_per_s: float = 0.0
    """The expected steps per second at the size; 0 if the rule promises no throughput."""
    candidates: tuple[Candidate, ...] = ()
