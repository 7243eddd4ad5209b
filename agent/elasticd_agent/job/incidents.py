"""The incidents that a node tells of, with what each change cost its slots.

In restart mode a change is told of when all workers run. Where the script says how far it is, the
way of the slowest worker to its first step follows, and the same record is written once more.
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
    """Of one membership. All methods run on the owner's thread."""

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
        """Write it down, to etcd and to the job's folder."""
        self._cost = self._account.change_s(incident.generation)
        incident = replace(incident, spent_s=plain(self._cost))
        self._last = incident if incident.step is None else None
        self._write(incident)

    def tell_way(self) -> Incident | None:
        """Tell once more of the change whose workers have all made a step by now, and return it.

        None: it was told of, or another change has come.
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
