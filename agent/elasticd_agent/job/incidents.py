"""The incidents that a node reports, with what each change cost its slots.

In restart mode a change is reported when all workers run. If the script reports its steps, the time
of the slowest worker up to its first step is added later, and the same record is written again.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from elasticd.goodput.cause import TimeCause
from elasticd.records.account.incident import Incident
from elasticd.rendezvous.effect import WriteIncident
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

    def tell(self, incident: Incident) -> None:
        """Write the incident to etcd and to the job's folder."""
        self._cost = self._account.change_s(incident.generation)
        incident = replace(incident, spent_s=plain(self._cost))
        self._last = incident if incident.step is None else None
        self._write(incident)

    def tell_way(self) -> Incident | None:
        """Report the change again once all its workers have made a step, and return it.

        Returns None if that was done already, or another change has come.
        """
        incident, self._last = self._last, None
        if incident is None or incident.generation != self._account.generations.newest:
            return None
        phases_s = {**incident.phases_s, "step": round(self._account.way_s, 4)}
        spent_s = dict(self._cost)
        for cause, seconds in self._account.change_s(incident.generation).items():
            spent_s[cause] = spent_s.get(cause, 0.0) + seconds
        incident = replace(
            incident,
            phases_s=phases_s,
            spent_s=plain(spent_s),
            step=self._account.first_step,
            lost_steps=self._account.repeated_steps,
        )
        self._write(incident)
        return incident

    def _write(self, incident: Incident) -> None:
        self.file.add(incident)
        self._perform(WriteIncident(incident=incident))
