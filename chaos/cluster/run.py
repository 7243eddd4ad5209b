"""The loop: look, note what was seen, decide, strike; until there is a verdict.

Nothing is broken by this process in a way that it would have to undo, so it may end at any moment:
SIGTERM ends the loop with the verdict of what was done so far.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from chaos.cluster.cluster_api import NotStruck
from chaos.cluster.decide import Aim, End, Victim, Wait, decide, refusal, victim
from chaos.cluster.fault import LOST, Kind
from chaos.cluster.observation import AgentPod, JobView, Observation, Worker
from chaos.cluster.plan import Draw, Plan
from chaos.cluster.recovery import Fault, Log, begin, disturbed, follow, struck
from chaos.cluster.verdict import Verdict, judge
from chaos.error import WrongInput
from elasticd.errors import Refused, Unavailable

__all__ = ["Cluster", "ClusterRun"]

POLL_S = 1.0
AGAIN_S = 5.0
"""Pods that were looked into in vain are looked into again after this time."""
AWAY_S = 120.0
"""The API server may be away for so long; after that the run ends."""


class Cluster(Protocol):
    """The real one is `ClusterApi`; all of its methods say there what they raise."""

    def look(self, names: Sequence[str]) -> Observation:
        """Read the agents' pods and the ElasticJobs."""

    def workers(self, pod: AgentPod) -> tuple[Worker, ...]:
        """Look into a pod."""

    def strike(self, kind: Kind, victim: Victim, *, stop_s: float, is_dry: bool) -> str:
        """Do a fault; return a note for the verdict."""


class ClusterRun:
    """One run over the jobs of a namespace; use it once."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        names: Sequence[str],
        *,
        say: Callable[[str], None],
        stop: threading.Event,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`names`: of the ElasticJobs; empty: all with the label. `stop` ends the run early."""
        self._cluster, self._plan, self._names = cluster, plan, names
        self._say, self._stop, self._now_s = say, stop, now_s
        self._said = ""
        self._again_s = 0.0

    def run(self) -> Verdict:
        """Break the jobs, and judge.

        Raises:
            WrongInput: there is no such job, or it is not to be broken.
            ElasticdError: the API server did not answer at all.
        """
        seen = self._begin()
        log, left = begin(seen, self._now_s()), list(self._plan.draws())
        heard_s, ended = self._now_s(), "it was told to end"
        while not self._stop.wait(POLL_S):
            try:
                seen = self._cluster.look(self._names)
                heard_s = self._now_s()
            except Refused as exc:
                ended = f"the API server refused it ({exc})"
                break
            except Unavailable as exc:
                if self._now_s() > heard_s + AWAY_S:
                    ended = f"the API server has been away for {AWAY_S:.0f} s ({exc})"
                    break
                continue
            now_s = self._now_s()
            log = follow(log, seen, now_s)
            match decide(log, seen, self._plan, left, now_s):
                case End(why=why):
                    ended = why
                    break
                case Wait(why=why):
                    self._tell(why)
                case Aim() as aim:
                    if (fault := self._strike(aim, seen, log, left)) is not None:
                        log = struck(log, fault)
                        left.pop(0)
        return judge(log, self._plan, ended=ended, ended_s=self._now_s())

    def rehearse(self) -> tuple[str, ...]:
        """Say what would be done to the cluster as it is now, and do nothing.

        Deletions and evictions are checked by the API server (dry run).

        Raises:
            WrongInput, ElasticdError: as `run`.
        """
        seen = self._begin()
        lines = []
        for draw in self._plan.draws():
            pods = [pod for _, pod in sorted(seen.serving.items())]
            first = int(draw.place * len(pods))
            found = self._victim(Aim(draw=draw, pods=(*pods[first:], *pods[:first])), seen)
            if isinstance(found, str):
                lines.append(f"{draw.number:>3} {draw.kind:<17} nobody: {found}")
                continue
            try:
                note = self._cluster.strike(draw.kind, found, stop_s=self._plan.stop_s, is_dry=True)
            except NotStruck as exc:
                note = f"it would be refused: {exc}"
            lines.append(f"{draw.number:>3} {draw.kind:<17} {found}{f'; {note}' if note else ''}")
        return tuple(lines)

    # --- private ------------------------------------------------------------------------------

    def _begin(self) -> Observation:
        """Look for the first time, and refuse what is not to be broken."""
        seen = self._cluster.look(self._names)
        missing = [name for name in self._names if name not in seen.jobs]
        if missing:
            raise WrongInput(
                f"There is no ElasticJob {missing[0]} in that namespace: `kubectl get ej -A` "
                "shows all."
            )
        if not seen.jobs:
            raise WrongInput(
                "No ElasticJob of that namespace has the label elasticd.dev/chaos=allowed, so "
                "nothing is broken: `kubectl label ej/NAME elasticd.dev/chaos=allowed`."
            )
        if not seen.pods:
            raise WrongInput("There is no pod of an agent in --agents-namespace.")
        for _, job in sorted(seen.jobs.items()):
            if why := refusal(job, self._plan):
                raise WrongInput(why)
        return seen

    def _strike(self, aim: Aim, seen: Observation, log: Log, left: Sequence[Draw]) -> Fault | None:
        """Find a victim and strike it; None: there is none now, or nothing was done."""
        if self._now_s() < self._again_s:
            return None
        found = self._victim(aim, seen)
        if isinstance(found, Victim):
            found = self._spared(found, seen, log) or found
        note = found if isinstance(found, str) else ""
        if isinstance(found, Victim):
            try:
                # To look into pods takes time: what has happened meanwhile counts.
                seen = self._cluster.look(self._names)
                now_s = self._now_s()
                again = decide(follow(log, seen, now_s), seen, self._plan, left, now_s)
                if self._stop.is_set():
                    return None
                if isinstance(again, Aim) and found.pod in again.pods:
                    return self._deed(aim.draw, found, seen.jobs)
                note = f"{found.pod.name} is not to be struck any more"
            except (NotStruck, Unavailable) as exc:
                note = str(exc)
        self._tell(note)
        self._again_s = self._now_s() + AGAIN_S
        return None

    def _deed(self, draw: Draw, found: Victim, jobs: Mapping[str, JobView]) -> Fault:
        at_s = self._now_s()
        note = self._cluster.strike(draw.kind, found, stop_s=self._plan.stop_s, is_dry=False)
        self._tell(f"fault {draw.number}: {draw.kind}, {found}{f'; {note}' if note else ''}")
        return Fault(
            number=draw.number,
            kind=draw.kind,
            node=found.pod.node,
            pod_uid=found.pod.uid,
            victim=str(found),
            at_s=at_s,
            before={name: jobs[name] for name in found.jobs},
            note=note,
            is_sure=not note.startswith(LOST),
        )

    def _victim(self, aim: Aim, seen: Observation) -> Victim | str:
        """Look into one pod after the other until there is a victim."""
        why = "no agent's pod is ready"
        for pod in aim.pods:
            if self._stop.is_set():
                break
            try:
                found = victim(aim.draw, pod, self._cluster.workers(pod), seen.jobs)
            except NotStruck as exc:
                found = str(exc)
            if isinstance(found, Victim):
                return found
            why = found
        return why

    def _spared(self, found: Victim, seen: Observation, log: Log) -> str:
        """Return why a victim is left alone, for it may be the last that has the state of a job
        without a checkpoint; empty: it is not.

        The status of a job may be older than the end of the others, so they are looked into.
        """
        hit = disturbed(log, seen) | {found.pod.node}
        others = [pod for node, pod in sorted(seen.serving.items()) if node not in hit]
        for name, job in sorted(found.jobs.items()):
            if not job.has_checkpoint and not any(self._trains(pod, job) for pod in others):
                return f"{found.pod.name} may be the last that has the state of {name}"
        return ""

    def _trains(self, pod: AgentPod, job: JobView) -> bool:
        try:
            found = self._cluster.workers(pod)
        except NotStruck:
            return False
        return any(worker.job == job.job and worker.rank is not None for worker in found)

    def _tell(self, sentence: str) -> None:
        """Say what changed, and nothing twice in a row; a countdown is said once."""
        outline = "".join(letter for letter in sentence if not letter.isdigit())
        if outline != self._said:
            self._said = outline
            self._say(sentence)
