"""The finding of a check, and its lines on the terminal. Pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from elasticd.errors import ElasticdError

__all__ = ["Check", "Finding", "Verdict", "guarded", "lines_of", "summary_of"]


class Verdict(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """A run works, but something is slow or missing."""
    PROBLEM = "problem"
    """A run that needs this fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    subject: str
    """The thing that was checked, in one or two words."""
    verdict: Verdict
    found: str
    """The state of the subject, as a sentence."""
    advice: str = ""
    """The advice to the user; empty if there is no problem."""


Check = Callable[[], Iterable[Finding]]
"""A function that checks one subject; it waits for a limited time only."""


def guarded(subject: str, check: Check) -> Iterator[Finding]:
    """Yield the findings of a check; an error that the check raises becomes a finding, too."""
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
    """Return the line of a finding, and a second line if there is advice."""
    head = f"{finding.verdict:<8} {finding.subject:<14} "
    advice = [f"{'':{len(head)}}{finding.advice}"] if finding.advice else []
    return [f"{head}{' '.join(finding.found.split())}", *advice]


def summary_of(findings: Iterable[Finding]) -> str:
    """Return the last line of the output, which sums up all findings."""
    verdicts = [each.verdict for each in findings]
    counts = [(verdicts.count(each), each) for each in (Verdict.PROBLEM, Verdict.WARNING)]
    named = [f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count]
    return f"{' and '.join(named)} found." if named else "No problem was found."
