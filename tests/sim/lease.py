"""The lease of one simulated agent: kept alive, lost, granted anew; and the licenses under it."""

import math
from typing import TYPE_CHECKING, cast

from elasticd.records.ids import Life
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.state import Stage
from tests.sim.etcd import Item, Put

if TYPE_CHECKING:
    from tests.sim.agent import Agent

__all__ = ["TTL_S", "AgentLease"]

TTL_S = 5.0
NAME_RETRY_S = 1.0


class AgentLease:
    """As `Registration` and `Licenses` do it: one lease at a time, sought anew when it is lost."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._clock, self._etcd = agent.node.sim.clock, agent.node.sim.etcd
        self._ttl_s = agent.node.sim.lease_ttl_s
        self.id: int | None = None
        self.deadline_s = 0.0
        self._is_uncertain = False
        self._is_granting = False
        self._history = 0
        self._joined: int | None = None
        """Under which the standing membership joined."""
        self._license_s = math.inf

    @property
    def is_sure(self) -> bool:
        return self.id is not None and self._clock.now_s < self.deadline_s

    def take(self) -> None:
        if self._is_granting or self.id is not None:
            return
        agent, sent_s, self._is_granting = self._agent, self._clock.now_s, True

        def granted(lease: object | None) -> None:
            self._is_granting = False
            if not lease:
                pause_s = 0.3 if lease is None else NAME_RETRY_S
                self._clock.after(pause_s, agent.when_able(self.take))
                return
            self.id = cast(int, lease)
            self._history = self._etcd.history
            self.deadline_s = sent_s + self._ttl_s
            self._is_uncertain = False
            self._clock.after(self._ttl_s / 3, self.keep_alive)
            self._watch_deadline()
            agent.join()

        agent.node.link.call(self._register, agent.answer(granted))

    def _register(self) -> int:
        """At the server: a lease with the node's record under it; 0: another life's stands."""
        agent = self._agent
        other = self._etcd.get("node", agent.node.name)
        is_other = other is not None and other.value != agent.life
        if is_other and not agent.node.sim.is_refused(cast(Life, cast(Item, other).value)):
            return 0
        lease = self._etcd.grant(self._ttl_s).id
        self._etcd.commit([Put("node", agent.node.name, agent.life, lease)])
        return lease

    def keep_alive(self) -> None:
        agent = self._agent
        if not agent.is_alive or agent.is_stopped or self.id is None:
            return
        lease, sent_s = self.id, self._clock.now_s

        def kept(known: object | None) -> None:
            if lease != self.id:
                return
            if known is None:
                self._clock.after(0.2, self.keep_alive)
                return
            if not known:
                self.id = None
                self._cut_license()
                agent.post(ev.LeaseEnded())
                self.take()
                return
            self.deadline_s = max(self.deadline_s, sent_s + self._ttl_s)
            self._watch_deadline()
            if self._is_uncertain and self._clock.now_s < self.deadline_s:
                self._is_uncertain = False
                agent.post(ev.LeaseHeld())
            self._clock.after(self._ttl_s / 3, self.keep_alive)

        def ask() -> bool:
            # What etcd knows of it is of another history: the store gives it up, and revokes it.
            if self._history != self._etcd.history:
                self._etcd.revoke(lease)
            return self._etcd.keep(lease)

        agent.node.link.call(ask, agent.answer(kept))

    def check(self) -> None:
        """Tell the core once the deadline has passed."""
        if self.id is None or self._is_uncertain or self._clock.now_s < self.deadline_s:
            return
        self._is_uncertain = True
        self._agent.post(ev.LeaseUncertain())

    def joined(self) -> None:
        """A membership begins under this lease."""
        self._joined = self.id
        self._renew_license()

    def give_back(self) -> None:
        lease, self.id = self.id, None
        if lease is not None:
            self._agent.node.link.call(lambda: self._etcd.revoke(lease), lambda _: None)

    def _watch_deadline(self) -> None:
        self._clock.at(self.deadline_s, self._agent.when_able(self.check))
        self._renew_license()

    def _renew_license(self) -> None:
        """The pool's own limit; what is of an earlier lease, or void, is licensed no more."""
        state = self._agent.state
        if state is not None and (self._joined != self.id or state.stage is Stage.VOID):
            return
        self._license_until(self.deadline_s + self._agent.node.sim.spec.isolation_limit_s)

    def _cut_license(self) -> None:
        """The lease was lost before its deadline: others count from now at the latest."""
        limit_s = self._clock.now_s + self._agent.node.sim.spec.isolation_limit_s
        self._license_until(min(self._license_s, limit_s))

    def _license_until(self, license_s: float) -> None:
        node, self._license_s = self._agent.node, license_s

        def isolated() -> None:
            if self._license_s == license_s:
                node.kill_workers(self._agent)

        self._clock.at(license_s, isolated)
