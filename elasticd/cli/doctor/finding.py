"""What a check found, and how it is shown. Pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from elasticd.errors import ElasticdError

__all__ = ["Check", "Finding", "Verdict", "guarded", "lines_of", "summary_of"]


class Verdict(StrEnum):
    """How much it matters."""

    OK = "ok"
    WARNING = "warning"
    """A run works, and something of it will be slow, or missed."""
    PROBLEM = "problem"
    """A run that needs this fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    """What was looked at, in one or two words."""
    verdict: Verdict
    found: str
    """What was seen there."""
    advice: str = ""
    """What to do about it; empty if all is well."""


Check = Callable[[], Iterable[Finding]]
"""Looks at one subject. It waits for a limited time only."""


def guarded(subject: str, check: Check) -> Iterator[Finding]:
    """Yield what a check finds; an error that it meets is a problem that was found."""
    try:
        yield from check()
    except ElasticdError as exc:
        yield Finding(subject=subject, verdict=Verdict.PROBLEM, found=str(exc))
    except OSError as exc:
        what = f"{exc.strerror or exc}{f': {exc.filename}' if exc.filename else ''}"
        yield Finding(
            subject=subject,
            verdict=Verdict.PROBLEM,
            found=f"The system refused a call ({what}).",
        )


def lines_of(finding: Finding) -> list[str]:
    """Return the line of a finding, and a second one with what to do."""
    head = f"{finding.verdict:<8} {finding.subject:<14} "
    advice = [f"{'':{len(head)}}{finding.advice}"] if finding.advice else []
    return [f"{head}{' '.join(finding.found.split())}", *advice]


def summary_of(findings: Iterable[Finding]) -> str:
    """Return the last line."""
    verdicts = [each.verdict for each in findings]
    counts = [(verdicts.count(each), each) for each in (Verdict.PROBLEM, Verdict.WARNING)]
    named = [f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count]
    return f"{' and '.join(named)} found." if named else "No problem was found."
