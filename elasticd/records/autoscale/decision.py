"""One decision of the autoscaler: what it saw, what it chose and promised, and the outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from elasticd.records.ids import Generation

__all__ = ["DECISIONS_LIMIT", "Candidate", "Decision", "DecisionOutcome", "Rule"]

DECISIONS_LIMIT = 200
"""How many decisions a job keeps, the newest."""


class Rule(StrEnum):
    """The rule of the policy that decided."""

    TARGET = "target"
    GOODPUT = "goodput"
    DEADLINE = "deadline"
    BUDGET = "budget"
    IDLE = "idle"
    LIMITS = "limits"
    """The size was outside of what the policy allows."""
    TAKE_BACK = "take_back"
    """An earlier decision did not bring what it had promised."""


class DecisionOutcome(StrEnum):
    """The outcome of a decision."""

    OPEN = "open"
    """The outcome is not known yet."""
    KEPT = "kept"
    TAKEN_BACK = "taken_back"
    """It brought less than half of its promise."""
    UNKNOWN = "unknown"
    """Something else changed the job before two windows were over, or nothing was promised."""
    DRY_RUN = "dry_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One size that was considered."""

    nodes: int
    steps_per_s: float = 0.0
    """Steps per second, measured or fitted; 0 if not known."""
    is_measured: bool = False
    gain_steps: float = 0.0
    """The steps that it would bring within the horizon, less the cost of the change."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """It is written with the wish that it makes, in one transaction; its outcome follows."""

    number: int
    """The number; 1 for the job's first decision."""
    uid: str = ""
    rule: Rule
    from_nodes: int
    to_nodes: int
    why: str
    """One sentence for people."""
    generation: Generation = Generation(0)
    """The generation of the world that it found."""
    inputs: Mapping[str, float] = field(default_factory=dict)
    """The numbers on which it rests, by name."""
    fit: Mapping[str, float] = field(default_factory=dict)
    """The curve's a, b and c at that time; empty if the rule needs none."""
    candidates: tuple[Candidate, ...] = ()
    was_steps_per_s: float = 0.0
    """Steps per second, measured before; 0 if not known."""
    promised_steps_per_s: float = 0.0
    """Steps per second; 0 if it promised no throughput, and is not judged by it."""
    is_probe: bool = False
    """True if the size had not been measured, so that it is tried."""
    is_dry_run: bool = False
    missing: str = ""
    """What the wish lacks, as a sentence: nodes that are not there, or room below MAX."""
    at_unix_s: float = 0.0
    """The time of the decision, shown to people."""
    outcome: DecisionOutcome = DecisionOutcome.OPEN
    got_steps_per_s: float = 0.0
    """Steps per second that two windows at the new size measured."""
    outcome_why: str = ""
    unknown: Mapping[str, object] = field(default_factory=dict)
