"""Sentences about the wants for a job's size, and about why the autoscaler waits. Pure."""

from collections.abc import Mapping

from elasticd.autoscale.explain.quantity import clock, counted
from elasticd.control.report.autoscaler import Autoscaling
from elasticd.control.report.report import JobReport
from elasticd.records.autoscale.memory import Memory
from elasticd.records.reason import Phase

__all__ = [
    "HELD",
    "NOT_LOOKED",
    "has_looked",
    "held_sentence",
    "held_since_unix_s",
    "missing_sentence",
    "size_sentence",
    "status_lines",
    "summary",
]

WHO: Mapping[str, str] = {
    "user": "a person",
    "operator": "the operator",
    "autoscaler": "the autoscaler",
}
NOT_LOOKED = "no autoscaler has looked at this policy yet"
HELD: Mapping[str, str] = {
    "not_running": "no world trains",
    "pinned": "a person's or the operator's wish comes first",
    "restart_mode": "a change would restart the scripts, and the policy does not allow that",
    "no_window": "this generation has not been measured for one whole window yet",
    "probe": "the last decision is still being measured",
    "cooldown": "the last decision is too young for another one",
    "gap": "a metric was missing, and is not there again for one whole window",
    "no_steps": "a rule needs the steps, and the job reports none",
    "other": "an input is missing",
    "empty": "a query finds no series",
    "stale": "the newest sample of a metric is too old",
    "not_a_number": "a query answers with no finite number",
    "many_series": "a query finds several series where one is wanted",
    "negative": "a query answers with less than 0",
    "unreachable": "Prometheus does not answer",
    "refused": "Prometheus refuses a query",
    "warning": "Prometheus warns that its answer is not whole",
}
"""The sentences to use if the autoscaler wrote none of its own."""


def size_sentence(report: JobReport) -> str:
    """Return which writer's want gives the size, why and since when."""
    want, target = report.size_want, report.target_nodes
    nodes = counted(target, "node")
    if want is None or want.nodes is None:
        return f"size: {nodes}, as many as it may have: nobody wishes for another size"
    who = WHO.get(want.writer, want.writer)
    since = f" since {clock(want.since_unix_s, has_day=True)}" if want.since_unix_s else ""
    why = f": {want.why}" if want.why else ""
    cut = f" (asked for {want.nodes})" if want.nodes != target else ""
    text = f"size: {nodes}{cut}, wished for by {who}{since}{why}"
    other = report.wants.get("autoscaler")
    if want.writer != "autoscaler" and other is not None and other.nodes is not None:
        text += (
            f"; the autoscaler's wish for {other.nodes} comes after that (`elasticd scale "
            f"{report.spec.name} auto` takes a person's wish back)"
        )
    return text


def has_looked(autoscaling: Autoscaling) -> bool:
    """Return whether the memory belongs to the present policy, and not to an earlier one."""
    policy, memory = autoscaling.policy, autoscaling.memory
    return (
        policy is not None
        and memory is not None
        and memory.policy_at_unix_s == policy.set_at_unix_s
    )


def held_since_unix_s(memory: Memory) -> float:
    """Return since when no decision was made, by the writer's clock; 0 if it is not known."""
    if not memory.held or not memory.at_unix_s:
        return 0.0
    return memory.at_unix_s - max(0.0, memory.now_s - memory.held_since_s)


def held_sentence(memory: Memory | None) -> str:
    """Return why the autoscaler keeps the size, and since when; empty if nothing stops it."""
    if memory is None or not memory.held:
        return ""
    since = clock(held_since_unix_s(memory), has_day=True)
    detail = memory.held_detail or HELD.get(memory.held, "")
    why = memory.held.replace("_", " ")
    return f"held{f' since {since}' if since else ''} ({why})" + (f": {detail}" if detail else "")


def missing_sentence(report: JobReport) -> str:
    """Return which nodes a wish lacks, or which limit it meets; empty if there is neither."""
    if report.status.phase is not Phase.RUNNING or report.world is None:
        return ""
    here, target = len(report.world.nodes), report.target_nodes
    if here >= target:
        found = report.autoscaling
        lacks = found.memory.missing if found and found.memory and has_looked(found) else ""
        return f"missing: {lacks}" if lacks else ""
    last = report.autoscaling.newest(1) if report.autoscaling is not None else ()
    newest = last[0] if last else None
    why = newest.missing if newest is not None and newest.to_nodes == target else ""
    why = why or report.message or "no other node is free"
    return f"missing: {counted(target - here, 'node')} of the {target} wanted: {why}"


def status_lines(report: JobReport) -> list[str]:
    """Return lines about the want behind the size and the reason why the autoscaler waits; none for
    a job without either.
    """
    want = report.size_want
    if report.status.phase.is_final:
        return []
    lines = [size_sentence(report)] if want is not None else []
    found = report.autoscaling
    if found is None or found.policy is None or want is None or want.writer != "autoscaler":
        lines.append(summary(report))
    else:
        memory = found.memory if has_looked(found) else None
        held = (held_sentence(memory) if memory else NOT_LOOKED, missing_sentence(report))
        if detail := "; ".join(filter(None, held)):
            lines.append(f"autoscaler: {detail}")
    return [line for line in lines if line]


def summary(report: JobReport) -> str:
    """Return in one line the size that the autoscaler wants, and why; empty without a policy."""
    found = report.autoscaling
    if found is None or found.policy is None or report.status.phase.is_final:
        return ""
    memory = found.memory if has_looked(found) else None
    parts = []
    if found.policy.is_dry_run or (memory is not None and memory.is_dry_run):
        parts.append("dry run")
    if memory is None:
        parts.append(NOT_LOOKED)
    elif memory.held:
        parts.append(held_sentence(memory))
    last = found.newest(1)
    newest = last[0] if last else None
    want = report.wants.get("autoscaler")
    if want is not None and want.nodes is not None:
        parts.append(f"wants {counted(want.nodes, 'node')}: {want.why}".rstrip(": "))
    elif newest is not None:
        parts.append(f"#{newest.number}: {newest.why}")
    elif memory is not None and not memory.held:
        parts.append(next(iter(memory.sentences.values()), "no change was worth it yet"))
    if want is not None and report.size_want is want and (lacking := missing_sentence(report)):
        parts.append(lacking)
    return f"autoscaler: {'; '.join(parts)}"
