"""What a watch missed is read again: once a minute, and where proposals are refused in a row."""

import pytest

from elasticd.records.reason import Phase
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.decide import LONGEST_RACE_PAUSE_S, RACES_BEFORE_REREAD, REREAD_S
from elasticd.rendezvous.facts.etcd_facts import WORLD_PATIENCE_S
from tests.unit.rendezvous.cases import Told, member, name, proposer, running, world


def rereads(told: Told) -> list[fx.Observe]:
    return [e for e in told.effects if isinstance(e, fx.Observe) and e.is_reread]


def refused(told: Told) -> float:
    """Have the proposal under way refused; returns the pause until the next look."""
    (effect,) = [e for e in told.effects if isinstance(e, fx.ProposeWorld)]
    token = effect.world.token
    told.tell(ev.ProposalAnswered(token=token, accepted=False, is_member_written=True))
    assert told.state.plan_at_s is not None
    return told.state.plan_at_s - told.now_s


def test_world_status_and_wants_are_read_again_about_once_a_minute() -> None:
    """Not only members and results: no other event would come if one of these was missed."""
    told = proposer(1)
    due_s = told.state.reread_at_s
    told.tick(due_s - told.now_s - 0.01)
    assert not rereads(told)
    told.tick(0.02)
    assert rereads(told)
    assert 0.75 * REREAD_S <= told.state.reread_at_s - told.now_s <= 1.25 * REREAD_S


def test_members_do_not_all_read_at_the_same_moment() -> None:
    """A world event reaches a thousand of them within milliseconds."""
    times = set()
    for index in range(20):
        told = Told(index)
        told.standby()
        times.add(round(told.state.reread_at_s - told.now_s, 3))
    assert len(times) == 20 and max(times) - min(times) > 5.0


def test_proposer_that_missed_the_world_reads_it_and_asks_ever_less_often() -> None:
    """Its compare-and-set fails for ever; it must neither spin nor stay blind."""
    told = proposer(1)
    told.member(member(1, arrived=1, nonce=2))
    pauses = []
    for race in range(1, 16):
        pauses.append(refused(told))
        assert bool(rereads(told)) == (race % RACES_BEFORE_REREAD == 0)
        told.tick(pauses[-1] + 0.001)
    rounded = [round(pause_s, 6) for pause_s in pauses]
    assert rounded == sorted(rounded) and pauses[-1] == pytest.approx(LONGEST_RACE_PAUSE_S)
    assert sum(pauses) > 30.0


def test_status_that_is_refused_is_read_again_too() -> None:
    """It stands at another revision than the one that we know."""
    told = proposer(1, min_nodes=2)
    told.tell(ev.MemberDeleted(revision=500, node=name(1)))
    told.tick(0.2)
    for race in range(1, 9):
        assert told.count(fx.WriteStatus) == 1
        told.tell(ev.StatusWritten(ok=False))
        assert bool(rereads(told)) == (race % RACES_BEFORE_REREAD == 0)
        assert told.state.plan_at_s is not None
        told.tick(told.state.plan_at_s - told.now_s + 0.001)


def test_races_are_forgotten_once_a_write_was_accepted() -> None:
    """What stood in the way is over: the next loss is not waited with for seconds."""
    told = proposer(1, min_nodes=2)
    told.tell(ev.MemberDeleted(revision=500, node=name(1)))
    told.tick(0.2)
    for _ in range(8):
        told.tell(ev.StatusWritten(ok=False))
        assert told.state.plan_at_s is not None
        told.tick(told.state.plan_at_s - told.now_s + 0.001)
    told.tell(ev.StatusWritten(ok=True))
    assert told.state.lost_races == 0


def test_final_status_that_was_missed_ends_the_membership_when_it_is_read() -> None:
    """Else its workers and slots would be kept for ever."""
    told = proposer(1)
    told.tick(told.state.reread_at_s - told.now_s)
    assert rereads(told)
    told.status(running(1, uid=told.state.spec.uid))
    told.status(type(running(1))(phase=Phase.STOPPED, generation=running(1).generation))
    assert told.count(fx.StopWorker) == 1


@pytest.mark.parametrize("is_seen", [False, True])
def test_world_that_the_status_tells_of_is_read_again_where_it_is_not_seen(is_seen: bool) -> None:
    """They are written together; else the workers would train on in the world before it."""
    told = proposer(1)
    told.status(running(2))
    told.tick(WORLD_PATIENCE_S / 2)
    assert not rereads(told)
    if is_seen:
        told.world(world(2, 0, 1))
    told.tick(WORLD_PATIENCE_S / 2 + 0.001)
    assert bool(rereads(told)) is not is_seen
    told.tick(WORLD_PATIENCE_S)
    assert not rereads(told), "once: an etcd that is away is not asked each second"
