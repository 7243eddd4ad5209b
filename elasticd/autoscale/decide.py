"""Decide about the size of one job: all rules of its policy in one pure function.

It has no clock and does no I/O: the same records and the same sight give the same decision, in
whatever process. So a leader that is killed leaves nothing behind that the next one lacks.
"""

from dataclasses import dataclass, replace

from elasticd.autoscale.hold import forbidden
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.seen import Seen
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import Policy

__all__ = ["Decided", "decide"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What one evaluation of a job came to; whoever leads writes it in one transaction."""

    memory: Memory
    """To be written, on the clock of `Seen.now_s`."""
    curve: Curve
    """To be written where it differs from the one that was given."""
    decision: Decision | None = None
    """A new one; its number is `memory.decisions`."""
    closed: Decision | None = None
    """An earlier one whose outcome is known now. It may be closed by the new one."""
    wanted: int | None = None
    """The size to write as the autoscaler's want; None: what stands there stays."""
    held: str = ""
    """Why nothing is done, by a word of a closed list (hold.py); empty: nothing is held."""
    held_detail: str = ""
    """One sentence for people."""
    missing: str = ""
    """What the wish that stands lacks, as a sentence; empty: nothing."""
    proposals: tuple[Proposal, ...] = ()
    """What each rule said, for `explain`."""


def decide(
    policy: Policy, curve: Curve, memory: Memory, open_decision: Decision | None, seen: Seen
) -> Decided:
    """Return the next decision about a job, if there is one, and what to remember.

    `memory` is on the clock of `seen.now_s` (`shifted` where another process wrote it), and
    `open_decision` is the one that `memory.open_decision` names.
    """
    stop = forbidden(policy, seen)
    held, detail = stop if stop is not None else ("", "")
    since_s = memory.held_since_s if held == memory.held else seen.now_s
    memory = replace(
        memory,
        uid=seen.uid,
        now_s=seen.now_s,
        held=str(held),
        held_since_s=since_s,
        held_detail=detail,
    )
    return Decided(memory=memory, curve=curve, held=str(held), held_detail=detail)
