"""What a change cost, as it is told of once and once more."""

from collections.abc import Mapping
from pathlib import Path

from elasticd.goodput.cause import TimeCause
from elasticd.records.account.incident import Incident
from elasticd.records.ids import Generation, NodeId
from elasticd.records.reason import Reason
from elasticd.rendezvous.effect import WriteIncident
from elasticd_agent.account.generations import Generations
from elasticd_agent.job.incidents import Incidents


class Account:
    """Of a restart-mode job: what the change cost is asked for twice."""

    way_s, first_step, repeated_steps = 0.0, 21, 0

    def __init__(self, *costs_s: float) -> None:
        self._costs_s = list(costs_s)
        self.generations = Generations()
        self.generations.see(Generation(2), now_s=0.0)

    def change_s(self, generation: Generation) -> Mapping[TimeCause, float]:
        return {TimeCause.RECOVER: self._costs_s.pop(0)}


def test_cost_that_is_told_of_twice_is_rounded_once(tmp_path: Path) -> None:
    """A change would seem to cost more than all changes of the job did: 0.85 s of 0.84 s."""
    written: list[WriteIncident] = []
    account = Account(0.417, 0.426)
    incidents = Incidents(account, tmp_path, written.append)  # type: ignore[arg-type]
    incidents.tell(
        Incident(generation=Generation(2), node=NodeId("a"), host="h", reason=Reason.WORKER_KILLED)
    )
    assert incidents.tell_way() is not None
    assert [dict(each.incident.spent_s) for each in written] == [
        {"recover": 0.42},
        {"recover": 0.84},
    ]
    assert incidents.tell_way() is None
    incidents.file.wait(30.0)
