"""Whether a fault may begin now, and on which pod. Pure.

`decide` says whether it is time and which nodes may be struck. What runs in a pod is known only
after a look into it, so `victim` then says for one pod whether it is one: a pod that serves a job
without the label is none, whatever else runs in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from chaos.cluster.fault import TRAITS
from chaos.cluster.observation import (
    ALLOWED,
    FINAL,
    LABEL,
    AgentPod,
    JobView,
    Observation,
    Worker,
)
from chaos.cluster.plan import Draw, Plan
from chaos.cluster.recovery import Log, disturbed

__all__ = ["Aim", "Decision", "End", "Victim", "Wait", "decide", "refusal", "victim"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Not now; why, as a sentence."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """This fault is due. The pods are in the order in which they are to be looked into."""

    draw: Draw
    pods: Sequence[AgentPod]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """No further fault; why, as a sentence."""

    why: str


Decision: TypeAlias = Wait | Aim | End


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """Who is struck."""

    pod: AgentPod
    jobs: Mapping[str, JobView]
    """The jobs that have a worker in the pod."""
    worker: Worker | None = None
    """The process; None: the pod itself."""

    def __str__(self) -> str:
        where = f"pod {self.pod.name} on {self.pod.node}"
        if self.worker is None:
            return f"{where} ({', '.join(sorted(self.jobs))})"
        rank = f"rank {self.worker.rank}" if self.worker.rank is not None else "a worker"
        return f"{rank} of {self.worker.job} (pid {self.worker.pid} in {where})"


def refusal(job: JobView, plan: Plan) -> str:
    """Return why a job is not to be broken at all, as a sentence; empty: it may be."""
    if not job.is_allowed:
        return (
            f"ElasticJob {job.name} has no label {LABEL}={ALLOWED}, so it is left alone: "
            f"`kubectl label ej/{job.name} {LABEL}={ALLOWED}` permits to break it."
        )
    if job.phase in FINAL or job.phase == "Invalid":
        why = f" ({job.message.rstrip('.')})" if job.message else ""
        return f"ElasticJob {job.name} is {job.phase}{why}: there is nothing to break."
    if job.wanted and plan.at_once >= job.wanted and not job.has_checkpoint:
        return (
            f"ElasticJob {job.name} has {job.wanted} nodes and no checkpoint, and {plan.at_once} "
            "pods at once may be all that have its state: give it more nodes or a checkpoint, or "
            "lower --at-once."
        )
    return ""


def decide(
    log: Log, seen: Observation, plan: Plan, draws: Sequence[Draw], now_s: float
) -> Decision:
    """Say what is to be done now.

    `draws`: those that have not been done yet. `now_s`: on the clock of the log.
    """
    if (end := _end(log, seen, plan, draws, now_s)) is not None:
        return end
    if log.tracks and now_s < (due_s := log.tracks[-1].fault.at_s + plan.interval_s):
        return Wait(why=f"the next fault is due in {due_s - now_s:.0f} s")
    if not draws or now_s > log.began_s + plan.timeout_s:
        return Wait(why=_open(log))
    hit = disturbed(log, seen)
    if len(hit) >= plan.at_once:
        return Wait(why=f"{len(hit)} pods are disturbed ({', '.join(sorted(hit))})")
    for job in seen.jobs.values():
        if log.open:
            continue  # It may be smaller for now; how many are struck at once is limited above.
        if not job.is_full:
            return Wait(why=f"{job.name} is {job.phase or 'new'} with {job.nodes}/{job.wanted}")
        if job.name not in log.has_stepped:
            return Wait(why=f"the status of {job.name} has shown no step with all nodes yet")
    if any(job.wanted - len(hit) <= 1 and not job.has_checkpoint for job in seen.jobs.values()):
        return Wait(why="the last node that has a job's state is left alone")
    pods = [pod for node, pod in sorted(seen.serving.items()) if node not in hit]
    if not pods:
        return Wait(why="no agent's pod is ready")
    first = int(draws[0].place * len(pods))
    return Aim(draw=draws[0], pods=(*pods[first:], *pods[:first]))


def victim(
    draw: Draw, pod: AgentPod, found: Sequence[Worker], jobs: Mapping[str, JobView]
) -> Victim | str:
    """Return whom a fault would strike in a pod; or why nobody, as a part of a sentence.

    `jobs`: those that may be broken, by the names of their objects.
    """
    by_record = {job.job: name for name, job in jobs.items() if job.job}
    strangers = {one.job or "an unknown job" for one in found if one.job not in by_record}
    if strangers:
        return f"{pod.name} also serves {', '.join(sorted(strangers))}"
    if not found:
        return f"{pod.name} serves no job"
    # A process that waits for its first world is in none: its end changes nothing.
    training = sorted((one for one in found if one.rank is not None), key=lambda one: one.pid)
    served = {by_record[one.job] for one in training}
    if not training:
        return f"nobody trains in {pod.name} yet"
    if not TRAITS[draw.kind].is_of_worker:
        return Victim(pod=pod, jobs={name: jobs[name] for name in served})
    worker = training[int(draw.place * 997) % len(training)]
    name = by_record[worker.job]
    return Victim(pod=pod, jobs={name: jobs[name]}, worker=worker)


# --- private ----------------------------------------------------------------------------------


def _end(
    log: Log, seen: Observation, plan: Plan, draws: Sequence[Draw], now_s: float
) -> End | None:
    if log.ends:
        name, job = min(log.ends.items())
        return End(why=f"{name} is {job.phase}")
    for name, job in sorted(seen.jobs.items()):
        if not job.is_allowed:
            return End(why=f"{name} has lost its label {LABEL}={ALLOWED}")
    for track in log.open:
        if now_s > track.fault.at_s + plan.recover_s:
            return End(why=f"fault {track.fault.number} was not overcome in {plan.recover_s:.0f} s")
    if not draws and not log.open:
        return End(why="all faults were done")
    if now_s > log.began_s + plan.timeout_s and not log.open:
        return End(why=f"--timeout, {plan.timeout_s:.0f} s, is over")
    if now_s > log.began_s + plan.timeout_s + plan.recover_s:
        return End(why=f"--timeout, {plan.timeout_s:.0f} s, and --recover-within are over")
    return None


def _open(log: Log) -> str:
    numbers = ", ".join(str(track.fault.number) for track in log.open)
    return f"fault {numbers} is not overcome yet"
