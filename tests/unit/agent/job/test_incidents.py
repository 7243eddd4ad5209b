"""What a change cost, as it is told of once and once more."""

from collections.abc import Mapping
from pathlib import Path

from elasticd.goodput.cause import TimeCause
from elasticd.records.account.incident import Incident
from elasticd.records.ids import Generation, NodeId, Nonce, Slot
from elasticd.records.reason import Reason
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.effect import WriteIncident
from elasticd_agent.account.generations import Generations
from elasticd_agent.job.incidents import Incidents
from tests.fixtures.patience import patience_s
from tests.unit.agent.account.account_case import Accounted
from tests.unit.rendezvous.cases import running, world
from tests.unit.rendezvous.trainers import attach, entered, kept, trainer


class Account:
    """Of a restart-mode job: what the change cost is asked for twice."""

    way_s, first_step, repeated_steps = 0.0, 21, 0

    def __init__(self, *costs_s: float) -> None:
        self._costs_s = list(costs_s)
        self.generations = Generations()
        self.generations.observe(Generation(2), now_s=0.0)

    def change_s(self, generation: Generation) -> Mapping[TimeCause, float]:
        return {TimeCause.RECOVER: self._costs_s.pop(0)}


def test_cost_that_is_told_of_twice_is_rounded_once(tmp_path: Path) -> None:
    """A change would seem to cost more than all changes of the job did: 0.85 s of 0.84 s."""
    written: list[WriteIncident] = []
    account = Account(0.417, 0.426)
    incidents = Incidents(account, tmp_path, written.append)  # type: ignore[arg-type]
    incidents.report(
        Incident(generation=Generation(2), node=NodeId("a"), host="h", reason=Reason.WORKER_KILLED),
        now_s=0.0,
    )
    assert incidents.report_again() is not None
    assert [dict(each.incident.spent_s) for each in written] == [
        {"recover": 0.42},
        {"recover": 0.84},
    ]
    assert incidents.report_again() is None
    incidents.file.wait(patience_s(30.0))


class Telling(Accounted):
    """Like an agent, it has changes told of as they are decided, and once more at first commits."""

    def __init__(self, folder: Path, **spec: object) -> None:
        super().__init__(0, **spec)
        self.told: list[Incident] = []
        self.incidents = Incidents(self.account, folder, lambda it: self.told.append(it.incident))

    def tell(self, event: ev.Event, after_s: float = 0.0) -> tuple[object, ...]:  # type: ignore[override]
        effects = super().tell(event, after_s)
        for effect in effects:
            if isinstance(effect, WriteIncident):
                self.incidents.report(effect.incident, self.now_s)
        if isinstance(event, ev.WorkerStepped):
            self.incidents.report_first_commit(event, self.state, self.now_s)
        return effects

    def commits(self, slot: int, at_step: int, generation: int = 1, **phases_s: float) -> None:
        self.tell(
            ev.WorkerStepped(
                slot=Slot(slot),
                nonce=Nonce(1),
                generation=Generation(generation),
                step=at_step,
                phases_s=phases_s,
                place="storage",
                note="Restored step 40.",
            )
        )


def test_first_change_of_a_job_lasts_until_all_workers_here_have_committed(tmp_path: Path) -> None:
    """It is told of when they run, long before their scripts call `elasticd.run`."""
    job = Telling(tmp_path, workers_per_node=0)
    job.tell(ev.SlotsGranted(slots=(Slot(0), Slot(1))))
    job.standby()
    job.status(running(1))
    job.world(kept(1, 0, nonces={0: (1, 1)}))
    job.now_s += 5.0
    job.started()
    job.tell(ev.ResultsListed(results=()))
    (first,) = job.told
    assert first.spent_s == {"start": 10.0}
    job.now_s += 6.0
    for slot in (0, 1):
        attach(job, slot)
        entered(job, 1, slot)
    job.now_s += 1.0
    job.commits(0, 41, form=0.5, step=0.5)
    assert len(job.told) == 1, "the other one is on its way"
    job.now_s += 2.0
    job.commits(1, 41, form=0.5, step=2.5)
    (_, whole) = job.told
    assert whole.spent_s == {"start": 10.0 + 7.0 + 9.0}
    assert whole.phases_s["start"] == first.phases_s["start"] + 6.0
    assert sum(whole.phases_s.values()) == sum(first.phases_s.values()) + 9.0
    assert (whole.step, whole.restored_from, whole.note) == (41, "storage", "Restored step 40.")
    spent_s = job.account.account.counted(job.now_s)
    assert spent_s[TimeCause.START] == whole.spent_s["start"], "the table says the same"
    job.incidents.file.wait(patience_s(30.0))


def test_change_in_which_processes_went_on_has_no_start_though_it_is_told_of_again(
    tmp_path: Path,
) -> None:
    """Another world had come before its commit was heard of, so it was told of without one."""
    job = Telling(tmp_path, workers_per_node=0)
    job.status(running(1, is_in_process=True))
    job.standby()
    job.world(world(1, 0, 1))
    job.started()
    job.tell(ev.ResultsListed(results=()))
    job.members(trainer(0), trainer(1))
    attach(job)
    entered(job, 1)
    job.commits(0, 5, form=0.5, step=0.5)
    job.world(kept(2, 0, reason=Reason.WORKER_KILLED))
    job.now_s += 0.25
    entered(job, 2)
    job.told.clear()
    job.world(kept(3, 0, 1, reason=Reason.JOINED))
    (first,) = job.told
    assert (first.step, first.phases_s["push"]) == (None, 0.25)
    job.now_s += 7.0
    job.commits(0, 6, generation=2, abort=0.1, form=0.5, step=0.5)
    (_, whole) = job.told
    assert whole.step == 6
    assert whole.phases_s == {
        **first.phases_s,
        "push": 0.15,
        "abort": 0.1,
        "form": 0.5,
        "step": 0.5,
    }
    job.incidents.file.wait(patience_s(30.0))
