"""Watch events are hints: late, repeated and missing ones do no harm."""

from dataclasses import replace

from elasticd.records.ids import Life
from elasticd.records.reason import Phase
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.next_world.propose import proposers
from tests.unit.rendezvous.cases import (
    Told,
    incarnation,
    member,
    name,
    proposer,
    running,
    world,
)


def test_repeated_sight_of_a_deleted_member_does_not_bring_it_back() -> None:
    """An echo of the last put."""
    told = proposer(1)
    seen = told.state.members.get(name(1))
    assert seen is not None
    told.tell(ev.MemberDeleted(revision=500, node=name(1)))
    told.tell(
        ev.MemberSeen(
            revision=seen.mod_revision,
            member=seen.member,
            create_revision=seen.create_revision,
            mod_revision=seen.mod_revision,
        )
    )
    assert name(1) not in told.state.members and name(1) in told.state.gone_s


def test_member_that_comes_back_after_its_deletion_is_seen() -> None:
    """Also when both are told as of the last revision of one answer."""
    told = proposer(1)
    told.tell(ev.MemberDeleted(revision=500, node=name(1)))
    told.tell(
        ev.MemberSeen(
            revision=400, member=member(1, count=2), create_revision=400, mod_revision=400
        )
    )
    assert name(1) in told.state.members and name(1) not in told.state.gone_s


def test_node_is_gone_while_another_life_has_its_name() -> None:
    """The first agent may be stopped or cut off, with its workers running: its time runs on."""
    told = proposer(1)
    told.tell(ev.MemberDeleted(revision=500, node=name(1)))
    gone_s = told.state.gone_s[name(1)]
    told.now_s += 3.0
    told.member(member(1, life=2))
    assert told.state.gone_s == {name(1): gone_s}
    told.members(member(0), member(1, life=2))
    assert told.state.gone_s == {name(1): gone_s}
    told.member(member(1, count=2))
    assert told.state.gone_s == {}


def test_other_life_of_a_dead_agent_may_propose() -> None:
    """The only node of a job was started anew: it must not wait for itself."""
    told = Told(0, min_nodes=1, max_nodes=1)
    told.state = replace(told.state, me=replace(told.state.me, incarnation=incarnation(0, life=2)))
    told.standby()
    told.status(running(1))
    told.world(world(1, 0))
    told.tell(ev.ResultsListed(results=()))
    told.members(member(0, life=2))
    held = [effect for effect in told.effects if isinstance(effect, fx.HoldPeers)]
    assert [peer.life for effect in held for peer in effect.peers] == ["n0l1"], "nobody asked"
    told.tick(1.0)
    assert told.count(fx.ProposeWorld) == 0, "the first life may still train"
    told.tell(ev.PeerDied(node=name(0), life=Life("n0l1")))
    told.tick(1.0)
    assert told.count(fx.ProposeWorld) == 1


def test_all_agree_that_a_node_which_is_back_proposes() -> None:
    """Else each of three that came back could wait for another: some found its old life dead."""
    asked, other = proposer(1, 2), proposer(1, 2)
    asked.tell(ev.PeerDied(node=name(1), life=Life("n1l1")))
    assert proposers(asked.state) == (name(0), name(2))
    for told in (asked, other):
        told.tell(ev.MemberDeleted(revision=told.state.members_revision + 1, node=name(1)))
        assert proposers(told.state) == (name(0), name(2))
        told.member(member(1, life=2))
        assert proposers(told.state) == (name(0), name(1), name(2))


def test_two_lives_of_a_node_that_were_found_dead_are_both_dead() -> None:
    """The world names one, a record that outlives its agent the other; both addresses refuse."""
    told = proposer(1, 2)
    told.member(member(1, life=2))
    for life in ("n1l1", "n1l2"):
        told.tell(ev.PeerDied(node=name(1), life=Life(life)))
    world = told.state.world
    assert world is not None
    assert told.state.dead == {world.nodes[1].incarnation, member(1, life=2).incarnation}
    assert proposers(told.state) == (name(0), name(2))


def test_older_sight_of_a_member_is_ignored() -> None:
    """Revisions only go up."""
    told = proposer(1)
    told.member(member(1, arrived=1, nonce=2))
    told.tell(ev.MemberSeen(revision=1, member=member(1), create_revision=1, mod_revision=1))
    seen = told.state.members.get(name(1))
    assert seen is not None and seen.member.slots[0].nonce == 2


def test_deletion_does_not_vouch_for_what_came_before_it() -> None:
    """Its revision may be that of a whole answer, of which not all is told yet."""
    told = proposer(1)
    before = told.state.members_revision
    told.tell(ev.MemberDeleted(revision=before + 50, node=name(1)))
    assert told.state.members_revision == before


def test_answer_to_an_older_watch_is_ignored() -> None:
    """A proposer does not forget everybody because of a late list of three."""
    told = proposer(1, 2)
    told.tell(ev.MembersListed(revision=900, members=(), watched=(name(1),)))
    assert len(told.state.members) == 3 and told.state.has_all_members


def test_accusation_of_another_life_concerns_nobody() -> None:
    """The node was restarted meanwhile."""
    told = proposer(1)
    told.tell(ev.PeerDied(node=name(1), life=Life("n1l9")))
    assert told.state.dead == frozenset()


def test_peer_that_was_found_dead_is_replaced_without_its_lease() -> None:
    """After a moment in which others of its rack may follow."""
    told = proposer(1, 2)
    told.tell(ev.PeerDied(node=name(1), life=Life("n1l1")))
    told.tick(0.03)
    found = told.one(fx.ProposeWorld)
    assert isinstance(found, fx.ProposeWorld)
    assert [n.node for n in found.world.nodes] == [name(0), name(2)]


def test_when_all_proposers_are_gone_the_oldest_members_are_asked_for() -> None:
    """Three at once, seen by the fourth."""
    told = Told(3)
    told.standby()
    told.status(running(1))
    told.world(world(1, 0, 1, 2, 3))
    told.started()
    told.tell(ev.MembersListed(revision=900, members=(), watched=(name(0), name(1), name(2))))
    assert told.count(fx.FindOldest) == 1
    told.tell(ev.OldestFound(nodes=(name(3),)))
    observe = told.one(fx.Observe)
    assert isinstance(observe, fx.Observe) and observe.nodes is None


def test_when_one_of_the_oldest_is_gone_too_they_are_asked_for_anew() -> None:
    """Else the job waits for it to propose, for ever."""
    told = Told(5)
    told.standby()
    told.status(running(1))
    told.world(world(1, 0, 1, 2))
    told.tell(ev.MembersListed(revision=900, members=(), watched=(name(0), name(1), name(2))))
    assert told.count(fx.FindOldest) == 1
    told.tell(ev.OldestFound(nodes=(name(3), name(4))))
    row = ((member(4), 4, 4),)
    told.tell(ev.MembersListed(revision=901, members=row, watched=(name(3), name(4))))
    assert told.count(fx.FindOldest) == 1


def test_node_that_misses_its_own_record_settles() -> None:
    """It once changed its watches on every list, without end."""
    told = Told(0)
    told.standby()
    told.status(running(1))
    told.world(world(1, 0, 1))
    told.tell(ev.ResultsListed(results=()))
    told.tell(ev.MembersListed(revision=900, members=((member(1), 1, 1),)))
    assert told.count(fx.Observe) == 1
    told.tell(ev.MembersListed(revision=900, members=((member(1), 1, 1),), watched=(name(1),)))
    assert told.count(fx.Observe) == 0


def test_dead_one_among_the_oldest_is_passed_over() -> None:
    """It, too, once made an outsider change its watches without end."""
    told = Told(3)
    told.standby()
    told.status(running(0))
    told.tell(ev.OldestFound(nodes=(name(1), name(2))))
    rows = ((member(1), 1, 1), (member(2), 2, 2))
    told.tell(ev.MembersListed(revision=900, members=rows, watched=(name(1), name(2))))
    told.tell(ev.PeerDied(node=name(1), life=Life("n1l1")))
    told.tell(ev.MembersListed(revision=901, members=rows[1:], watched=(name(2),)))
    assert told.count(fx.Observe) == 0 and told.state.oldest == (name(2),)


def test_deadline_reads_the_members_once_more_before_it_accuses() -> None:
    """A watch may have missed an arrival."""
    told = proposer(1)
    told.world(world(2, 0, 1))
    told.status(running(2))
    deadline_s = told.state.formation_deadline_s
    assert deadline_s is not None
    told.tick(deadline_s - told.now_s)
    assert told.count(fx.Observe) == 1
    told.tick(1.0)
    assert told.count(fx.ProposeWorld) == 0, "not before the list is here"
    told.members(member(0, arrived=2), member(1, arrived=2))
    told.tick(1.0)
    assert told.count(fx.ProposeWorld) == 0 and told.state.formed_s is not None


def test_slow_reread_repairs_what_a_watch_missed() -> None:
    """Once a minute."""
    told = proposer(1)
    told.tick(61.0)
    assert told.count(fx.Observe) == 1
    told.members(member(0, arrived=1))
    told.tick(1.0)
    assert told.count(fx.ProposeWorld) == 1


def test_what_comes_after_the_end_belongs_to_another_job_of_the_name() -> None:
    """The name is free at once; who still winds the old job down is not to follow the new one."""
    told = proposer(1)
    ended = replace(running(1), phase=Phase.STOPPED)
    told.tell(ev.StatusSeen(status=ended, revision=600))
    told.tell(ev.StatusSeen(status=running(0), revision=700))
    told.tell(ev.WorldSeen(world=replace(world(1, 0), token="other"), revision=701))
    assert told.state.is_over
    assert told.state.world is not None and told.state.world.token != "other"
