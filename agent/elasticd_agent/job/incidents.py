"""The incidents that a node reports, with what each change cost its slots.

In restart mode a change is reported when all workers run. If the script reports its steps, the time
of the slowest worker up to its first step is added later, and the same record is written again. The
same happens when a script calls `elasticd.run` after that, as each does in its first world: the
change lasts until all workers have committed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from elasticd.goodput.cause import TimeCause
from elasticd.records.account.incident import Incident
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.conduct.change_incident import counted_once
from elasticd.rendezvous.effect import WriteIncident
from elasticd.rendezvous.state import JobState, WorkerStage
from elasticd_agent.account.incident_file import IncidentFile
from elasticd_agent.account.job_account import JobAccount
from elasticd_agent.job.account_recorder import plain

__all__ = ["Incidents"]


class Incidents:
    """Report the incidents of one membership."""

    def __init__(
        self, account: JobAccount, folder: Path, perform: Callable[[WriteIncident], None]
    ) -> None:
        """`folder` is the job's; `perform` writes to etcd."""
        self._account, self._perform = account, perform
        self.file = IncidentFile(folder)
        self._last: Incident | None = None
        """Told of, and without a step."""
        self._cost: Mapping[TimeCause, float] = {}
        """What that change cost so far: it is rounded once, after the sum, so that it never shows
        more than the job's whole account does."""
        self._told_s = 0.0
        """When the last incident was first reported, by the owner's clock."""
        self._stepped: list[ev.WorkerStepped] = []
        """First commits since then of the workers that were running already."""

    def report(self, incident: Incident, now_s: float) -> None:
        """Write the incident to etcd and to the job's folder."""
        self._told_s, self._stepped = now_s, []
        self._cost = self._account.change_s(incident.generation)
        incident = replace(incident, spent_s=plain(self._cost))
        self._last = incident if incident.step is None else None
        self._write(incident)

    def report_again(self) -> tuple[Incident, Incident] | None:
        """Report the change again once all its workers have made a step.

        Returns the first report and the new one, or None if that was done already, or another
        change has come.
        """
        before, self._last = self._last, None
        if before is None or before.generation != self._account.generations.newest:
            return None
        incident = replace(
            before,
            phases_s={**before.phases_s, "step": round(self._account.way_s, 4)},
            step=self._account.first_step,
            lost_steps=self._account.repeated_steps,
        )
        return before, self._rewrite(incident)

    def report_first_commit(
        self, event: ev.WorkerStepped, state: JobState, now_s: float
    ) -> tuple[Incident, Incident] | None:
        """Report a change again whose first report came before its scripts called `elasticd.run`.

        Returns the first report and the new one, once all workers of this node have committed.
        Returns None before that, and for a change whose first report had its commit already.
        """
        worker = state.workers.get(event.slot)
        if worker is None or worker.nonce != event.nonce or state.is_fenced:
            return None
        if event.generation != self._account.told_in:
            return None
        before = self._last
        if before is None or before.generation != event.generation:
            self._account.change_s(event.generation)  # It is not the cost of a later change.
            return None
        self._stepped.append(event)
        if any(
            each.generation == event.generation and each.stepped != event.generation
            for each in state.workers.values()
            if each.stage is not WorkerStage.FAILED
        ):
            return None
        self._last = None
        return before, self._rewrite(_committed(before, self._stepped, now_s - self._told_s))

    def _rewrite(self, incident: Incident) -> Incident:
        """Write the incident again, with what the change has cost since the first report."""
        spent_s = dict(self._cost)
        for cause, seconds in self._account.change_s(incident.generation).items():
            spent_s[cause] = spent_s.get(cause, 0.0) + seconds
        incident = replace(incident, spent_s=plain(spent_s))
        self._write(incident)
        return incident

    def _write(self, incident: Incident) -> None:
        self.file.add(incident)
        self._perform(WriteIncident(incident=incident))


def _committed(incident: Incident, stepped: Sequence[ev.WorkerStepped], since_s: float) -> Incident:
    """Add what the workers reported with their first commits.

    `since_s` is the time from the first report, when all workers ran, to the last of the commits. A
    change in which processes went on has no `start`: it was reported first because another world
    came before its commits arrived.
    """
    slowest = max(stepped, key=lambda each: sum(each.phases_s.values()))
    phases = {**incident.phases_s, **slowest.phases_s}
    if "start" in phases:
        # Scripts were started: they have imported and loaded until they called `elasticd.run`.
        way_s = max(0.0, since_s - sum(slowest.phases_s.values()))
        phases["start"] = round(phases["start"] + way_s, 4)
    return replace(
        incident,
        phases_s=counted_once(phases),
        step=max(each.step for each in stepped),
        lost_steps=max(each.lost_steps for each in stepped),
        received_bytes=sum(each.received_bytes for each in stepped),
        restored_from=next((each.place for each in stepped if each.place), ""),
        note=incident.note or next((each.note for each in stepped if each.note), ""),
    )
