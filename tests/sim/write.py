"""The effects that write to etcd: the transaction of each, and the event that answers it."""

from typing import cast

from elasticd.records.ids import Incarnation, NodeId
from elasticd.records.member import Result
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from tests.sim.etcd import Delete, Etcd, ModifiedAt, Op, Put, UnchangedSince, When

__all__ = ["answer", "commit", "is_of"]


def commit(etcd: Etcd, name: NodeId, effect: fx.Effect, lease: int | None) -> object:
    """Carry the effect out at the server."""
    match effect:
        case fx.WriteMember(member=member):
            return etcd.commit([Put("member", name, member, lease)])
        case fx.ProposeWorld():
            return _propose(etcd, name, effect, lease)
        case fx.WriteStatus(status=status, revision=revision):
            return etcd.commit([Put("status", "", status)], [ModifiedAt("status", "", revision)])
        case fx.WriteResult(result=result):
            return etcd.commit([Put("result", name, result)])
        case fx.WriteIncident(incident=incident):
            return etcd.commit([Put("incident", f"{incident.generation:08d}/{name}", incident)])
        case fx.Withdraw():
            return _withdraw(etcd, name, effect)
        case _:
            raise AssertionError(effect)


def _withdraw(etcd: Etcd, name: NodeId, effect: fx.Withdraw) -> object:
    result, item = effect.result, etcd.get("result", name)
    earlier = cast(Result, item.value) if item is not None else None
    if result.generation or earlier is None or earlier.incarnation == result.incarnation:
        return etcd.commit([Delete("member", name), Put("result", name, result)])
    revision = effect.world_revision
    when = [] if revision is None else [ModifiedAt("world", "", revision)]
    return etcd.commit([Delete("member", name)], when)


def _propose(etcd: Etcd, name: NodeId, effect: fx.ProposeWorld, lease: int | None) -> object:
    own: list[Op] = [Put("member", name, effect.member, lease)] if effect.member else []
    when: list[When] = [
        ModifiedAt("world", "", effect.world_revision),
        ModifiedAt("status", "", effect.status_revision),
    ]
    if effect.members_revision is not None:
        when.append(UnchangedSince("member", effect.members_revision))
    old = f"{effect.oldest_kept:08d}/"
    gone = [Delete("incident", n) for n in sorted(etcd.table("incident")) if n < old]
    gone += [Delete("result", n) for n in effect.unneeded_results]
    then = [Put("world", "", effect.world), Put("status", "", effect.status), *gone, *own]
    done = etcd.commit(then, when, own)
    item = etcd.get("world", "")
    return done, item.mod if item is not None else 0


def is_of(effect: fx.Effect, incarnation: Incarnation) -> bool:
    """False for a write of an incarnation before: its answer is nobody's any more."""
    match effect:
        case fx.WriteMember(member=member):
            return member.incarnation == incarnation
        case fx.Withdraw(result=result) | fx.WriteResult(result=result):
            return result.incarnation == incarnation
        case fx.ProposeWorld(world=world):
            return world.token.startswith(f"{incarnation}/")
        case _:
            return True


def answer(effect: fx.Effect, result: object | None) -> ev.Event:
    """The one event that answers the effect; `result` None: etcd did not answer."""
    match effect:
        case fx.WriteMember(member=member):
            return ev.MemberWritten(member=member, ok=bool(result))
        case fx.ProposeWorld(world=world):
            if result is None:
                return ev.ProposalAnswered(
                    token=world.token, accepted=False, is_member_written=False
                )
            done, revision = cast(tuple[bool, int], result)
            return ev.ProposalAnswered(
                token=world.token,
                accepted=done,
                is_member_written=True,
                world=world if done else None,
                revision=revision if done else 0,
            )
        case fx.WriteStatus():
            return ev.StatusWritten(ok=bool(result))
        case fx.Withdraw():
            return ev.WithdrawalDone(ok=bool(result))
        case _:
            return ev.EffectDone(name=type(effect).__name__, ok=bool(result))
