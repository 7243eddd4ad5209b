"""What a rule says: a size or none, and why, in one sentence for people."""

from dataclasses import dataclass

from elasticd.records.autoscale.decision import Candidate, Rule

__all__ = ["Proposal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The word of one rule in one evaluation."""

    rule: Rule
    nodes: int | None
    """None: the rule has nothing to say (its inputs are missing, or it has no wish)."""
    why: str
    """One sentence that names the numbers behind it."""
    held: str = ""
    """With None: the word under which this is counted; empty: nothing is missing."""
    may_shrink: bool = True
    """False: not all of its inputs are there, and only a larger size may be followed."""
    is_probe: bool = False
    was_steps_per_s: float = 0.0
    promised_steps_per_s: float = 0.0
    """What the size is expected to bring; 0: the rule promises no throughput."""
    candidates: tuple[Candidate, ...] = ()
