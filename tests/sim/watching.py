"""The watches on members and results: what etcd shows, as the events of one agent's core."""

from typing import TYPE_CHECKING, cast

from elasticd.records.ids import NodeId
from elasticd.records.member import Member, Result
from elasticd.rendezvous import event as ev
from tests.sim.etcd import Changes, Watch

if TYPE_CHECKING:
    from tests.sim.agent import Agent

__all__ = ["observe"]


def observe(agent: "Agent", nodes: tuple[NodeId, ...] | None) -> list[Watch]:
    """Watch all members and their results, or the members records of a few."""
    me, link, etcd = agent.incarnation, agent.node.link, agent.node.sim.etcd

    def members(is_list: bool, revision: int, changes: Changes) -> None:
        def tell() -> None:
            if agent.incarnation == me:
                _tell_members(agent, nodes, is_list, revision, changes)

        agent.when_able(tell)()

    def results(is_list: bool, revision: int, changes: Changes) -> None:
        agent.when_able(lambda: _tell_results(agent, is_list, changes))()

    names = None if nodes is None else frozenset(nodes)
    watches = [etcd.watch("member", names, members, link)]
    if nodes is None:
        watches.append(etcd.watch("result", None, results, link))
    return watches


def _tell_members(
    agent: "Agent",
    nodes: tuple[NodeId, ...] | None,
    is_list: bool,
    revision: int,
    changes: Changes,
) -> None:
    if is_list:
        rows = tuple((cast(Member, i.value), i.create, i.mod) for _, i in changes if i is not None)
        agent.post(ev.MembersListed(revision=revision, members=rows, watched=nodes))
        return
    for name, item in changes:
        if item is None:
            agent.post(ev.MemberDeleted(revision=revision, node=NodeId(name)))
            continue
        agent.post(
            ev.MemberSeen(
                revision=revision,
                member=cast(Member, item.value),
                create_revision=item.create,
                mod_revision=item.mod,
            )
        )


def _tell_results(agent: "Agent", is_list: bool, changes: Changes) -> None:
    if is_list:
        rows = tuple(cast(Result, i.value) for _, i in changes if i is not None)
        agent.post(ev.ResultsListed(results=rows))
        return
    for name, item in changes:
        if item is None:
            agent.post(ev.ResultDeleted(node=NodeId(name)))
        else:
            agent.post(ev.ResultSeen(result=cast(Result, item.value)))
