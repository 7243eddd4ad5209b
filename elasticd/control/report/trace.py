"""A job's changes of world as a trace for Perfetto and chrome://tracing. Pure.

A trace has one row for the job, with its generations, and one row for each node, with the phases
that the node measured. Each node's row uses the node's own wall clock, so small distances between
two rows mean nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from elasticd.control.report.change_report import ChangeReport
from elasticd.records.account.incident import PHASES, Incident

__all__ = ["chrome_trace"]

_US = 1e6
_JOB = 0
"""The number of the job's row; the rows of the nodes follow."""

Event = dict[str, object]


def chrome_trace(
    job: str, changes: Sequence[ChangeReport], incidents: Iterable[Incident]
) -> dict[str, object]:
    """Return the trace as JSON."""
    written = [
        incident for incident in incidents if not incident.is_announced and incident.at_unix_s
    ]
    nodes = {name: number for number, name in enumerate(sorted({i.node for i in written}), start=1)}
    events = [_name(_JOB, f"job {job}"), *(_name(number, name) for name, number in nodes.items())]
    events += _generations([change for change in changes if change.at_unix_s])
    for incident in written:
        events += _phases(nodes[incident.node], incident)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _generations(changes: Sequence[ChangeReport]) -> Iterator[Event]:
    """Yield the generations: each lasts until the next one begins; the last one has no length."""
    for change, later in pairwise(changes):
        end_s = max(change.at_unix_s, later.at_unix_s - later.total_s)
        yield _span(_JOB, _title(change), change.at_unix_s, end_s, _facts(change))
    for change in changes[-1:]:
        yield _span(_JOB, _title(change), change.at_unix_s, change.at_unix_s, _facts(change))


def _phases(row: int, incident: Incident) -> Iterator[Event]:
    """Yield the phases in sequence; the last one ends at the time of the node's report."""
    known = [(name, incident.phases_s[name]) for name in PHASES if name in incident.phases_s]
    at_s = incident.at_unix_s - sum(seconds for _, seconds in known)
    facts: Event = {
        "generation": incident.generation,
        "reason": incident.reason.value,
        "spent_s": dict(incident.spent_s),
    }
    if incident.unnoticed_s:
        begin_s = at_s - incident.unnoticed_s
        yield _span(row, "no step ended", begin_s, at_s, facts)
    for name, seconds in known:
        yield _span(row, name, at_s, at_s + seconds, facts)
        at_s += seconds


def _title(change: ChangeReport) -> str:
    return f"generation {change.generation}: {change.world_size} workers ({change.reason.value})"


def _facts(change: ChangeReport) -> Event:
    culprit = change.culprit
    return {
        "nodes": change.nodes,
        "lost": list(change.lost),
        "culprit": f"rank {culprit.rank} on {culprit.node}" if culprit is not None else "",
        "slot_s": round(change.slot_s, 2),
    }


def _span(row: int, name: str, begin_s: float, end_s: float, facts: Event) -> Event:
    """Return a span with a name, a begin and an end."""
    duration_us = round((end_s - begin_s) * _US, 1)
    found: Event = {"name": name, "ph": "X", "pid": row, "tid": row, "args": facts}
    return {**found, "ts": round(begin_s * _US, 1), "dur": max(0.0, duration_us)}


def _name(row: int, name: str) -> Event:
    return {"name": "process_name", "ph": "M", "pid": row, "tid": row, "args": {"name": name}}
