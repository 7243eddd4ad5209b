"""What a rule came to, and what all of them came to together. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from chaos.history.recovery import Recovery

__all__ = ["Finding", "Judgement", "finding_of"]

MOST_EVIDENCE = 5
"""How many of the cases that broke a rule are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule came to."""

    rule: str
    claim: str
    checked: int
    """Cases that could have broken it; 0: this run says nothing about it."""
    evidence: tuple[str, ...] = ()
    """One sentence for each of the first few cases that broke it."""
    broken: int = 0

    @property
    def holds(self) -> bool:
        return self.broken == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    findings: tuple[Finding, ...]
    recoveries: tuple[Recovery, ...]
    generations: int
    committed_steps: int
    discarded_steps: int
    late_steps: int
    """Applied by single ranks after a newer generation's first step; harmless, as LATE_STEPS of
    `invariants` explains."""
    samples: int
    """Counted in committed steps."""
    worst_parity: float | None
    """Greatest relative difference from the undisturbed run."""
    goodput: float | None
    """Of what lived."""
    full_goodput: float | None = None
    """Of full size."""

    @property
    def holds(self) -> bool:
        return all(finding.holds for finding in self.findings)


def finding_of(rule: str, claim: str, checked: int, wrong: Iterable[str]) -> Finding:
    """Return what a rule came to, with a sentence for each case that broke it."""
    sentences = list(wrong)
    return Finding(
        rule=rule,
        claim=claim,
        checked=checked,
        evidence=tuple(sentences[:MOST_EVIDENCE]),
        broken=len(sentences),
    )
