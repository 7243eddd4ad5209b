"""A job whose name another has by now, or whose records were cleared away, is over here."""

import dataclasses

import pytest

from elasticd.records.ids import Generation
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.state import Stage
from tests.unit.rendezvous.cases import Told, member, proposer, running, world

OTHER = "another-uid"


def trained() -> Told:
    """node-0 trains in generation 1 with node-1."""
    told = proposer(1, shutdown_timeout_s=30.0, failure_timeout_s=3.0)
    told.status(running(1, uid=told.state.spec.uid))
    return told


def replaced_by_status(told: Told) -> None:
    told.status(running(0, uid=OTHER))


def replaced_by_world(told: Told) -> None:
    told.world(dataclasses.replace(world(7, 0, 1), uid=OTHER))


@pytest.mark.parametrize("seen", [replaced_by_status, replaced_by_world])
def test_node_leaves_a_job_whose_name_is_used_again(seen: "object") -> None:
    """Its workers end soon, it says goodbye, and it is free for the other job."""
    told = trained()
    seen(told)  # type: ignore[operator]
    stop = told.one(fx.StopWorker)
    assert isinstance(stop, fx.StopWorker) and stop.grace_s == 3.0
    assert told.count(fx.StartWorker) == 0
    told.exited(-15)
    goodbye = told.one(fx.Withdraw)
    assert isinstance(goodbye, fx.Withdraw) and goodbye.result.has_left
    told.tell(ev.WithdrawalDone(ok=True))
    retire = told.one(fx.Retire)
    assert isinstance(retire, fx.Retire) and retire.is_job_over
    assert retire.rejoin_after_s is None


def test_old_script_is_not_started_in_the_world_of_the_other_job() -> None:
    """That one may name us: our record, under the old spec, stood among its members."""
    told = Told(1)
    told.standby()
    told.status(running(1, uid=OTHER))
    told.world(dataclasses.replace(world(1, 0, 1), uid=OTHER))
    assert not told.state.workers and told.state.stage is Stage.WITHDRAWING


def test_results_of_the_old_job_are_not_told_to_the_other_one() -> None:
    """Exit 0 in its generation 1 would look like a finished rank of ours."""
    told = trained()
    replaced_by_status(told)
    told.exited(0)
    assert told.count(fx.WriteResult) == 0
    goodbye = told.one(fx.Withdraw)
    assert isinstance(goodbye, fx.Withdraw) and goodbye.result.exits == ()


def test_job_that_was_cleared_away_ends_without_a_word() -> None:
    """Our records went with it; none is left behind."""
    told = trained()
    told.revision += 1
    told.tell(ev.StatusSeen(status=None, revision=told.revision))
    assert told.count(fx.StopWorker) == 1
    told.exited(-15)
    assert [type(effect) for effect in told.effects] == [fx.Retire]
    retire = told.one(fx.Retire)
    assert isinstance(retire, fx.Retire) and retire.is_job_over


def test_status_that_was_never_seen_is_yet_to_come() -> None:
    """A list that is empty at first says nothing of the job's end."""
    told = Told(0)
    told.standby()
    told.tell(ev.StatusSeen(status=None, revision=50))
    told.status(running(0, uid=told.state.spec.uid))
    assert not told.state.is_over and told.state.status is not None


def test_records_without_a_uid_are_of_an_older_version() -> None:
    """A cluster is updated one agent after the other."""
    told = trained()
    told.status(running(1, message="of old"))
    told.world(world(2, 0, 1))
    assert not told.state.is_replaced and told.state.world is not None
    assert told.state.world.generation == Generation(2)


def test_world_and_status_say_whose_they_are() -> None:
    """Both, so that whichever is seen first tells."""
    told = trained()
    told.member(member(1, arrived=1, nonce=2))
    effect = told.one(fx.ProposeWorld)
    assert isinstance(effect, fx.ProposeWorld)
    assert effect.world.uid == effect.status.uid == told.state.spec.uid != ""
