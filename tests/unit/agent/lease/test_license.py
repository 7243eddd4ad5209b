"""Until when workers may run: what memberships and pools are told of the lease, in which order."""

from dataclasses import dataclass, field

from elasticd.records.job import JobSpec
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.state import Stage
from elasticd.store.api import LeaseId
from elasticd_agent.lease.license import Licenses
from elasticd_agent.loop.clock import now_s
from tests.fixtures.captured_log import captured_log
from tests.sim.schedule import spec_of

LIMIT_S = 60.0


@dataclass
class FakeLease:
    id: LeaseId
    deadline_s: float
    ttl_s: float = 5.0

    def revoke(self) -> None: ...
    def close(self) -> None: ...


@dataclass
class FakeStanding:
    lease: FakeLease | None
    is_fenced: bool = False


@dataclass
class FakeWorkers:
    story: list[str]
    spec: JobSpec = field(default_factory=lambda: spec_of(isolation_limit_s=LIMIT_S))
    until_s: float = 0.0

    def allow_until(self, until_s: float) -> None:
        self.until_s = until_s
        self.story.append("licensed")


@dataclass
class FakeMembership:
    licensed: FakeWorkers
    lease_id: LeaseId | None = LeaseId(1)
    stage: Stage = Stage.MEMBER

    def feed(self, event: ev.Event) -> None:
        self.licensed.story.append(type(event).__name__)


def membership(lease: int = 1, stage: Stage = Stage.MEMBER) -> FakeMembership:
    return FakeMembership(FakeWorkers([]), LeaseId(lease), stage)


def test_idle_node_says_that_its_lease_is_unsure_too() -> None:
    """Its log was silent while etcd was away: each job tells, and it has none."""
    standing = FakeStanding(FakeLease(LeaseId(1), 100.0), is_fenced=True)
    licenses = Licenses(standing)
    with captured_log() as said:
        licenses.check([], [])
        licenses.check([], [])
        standing.is_fenced = False
        licenses.check([], [])
    assert [line["event"] for line in said] == ["lease.uncertain", "lease.held"]


def test_license_comes_before_the_news_that_the_lease_is_held() -> None:
    """That news may start workers, which a pool whose license is over would refuse."""
    standing = FakeStanding(FakeLease(LeaseId(1), 100.0))
    licenses, member = Licenses(standing), membership()
    licenses.check([member], [])
    standing.is_fenced = True
    licenses.check([member], [])
    assert standing.lease is not None
    standing.is_fenced, standing.lease.deadline_s = False, 170.0
    licenses.check([member], [])
    story = member.licensed.story
    assert story == ["licensed", "LeaseUncertain", "licensed", "LeaseHeld"]
    assert member.licensed.until_s == 170.0 + LIMIT_S


def test_membership_of_a_lost_lease_is_not_licensed_by_the_next_one() -> None:
    """Strangers count on its old limit, also if etcd comes back just before."""
    standing = FakeStanding(FakeLease(LeaseId(1), 100.0))
    licenses, old = Licenses(standing), membership(lease=1)
    licenses.check([old], [])
    standing.lease = FakeLease(LeaseId(2), 170.0)
    new = membership(lease=2)
    licenses.check([old, new], [])
    assert old.licensed.until_s == 100.0 + LIMIT_S
    assert new.licensed.until_s == 170.0 + LIMIT_S


def test_lease_that_is_lost_before_its_deadline_takes_the_rest_of_the_license() -> None:
    """Its records went long before: others count from then, and not from the deadline."""
    standing = FakeStanding(FakeLease(LeaseId(1), now_s() + 300.0))
    licenses, member, void = Licenses(standing), membership(), membership(stage=Stage.VOID)
    licenses.check([member, void], [])
    standing.lease = None
    licenses.end([member, void])
    assert member.licensed.until_s <= now_s() + LIMIT_S and void.licensed.story == ["LeaseEnded"]
    standing.lease, kept = FakeLease(LeaseId(2), now_s() + 300.0), FakeWorkers([])
    licenses.check([], [kept])
    assert kept.until_s == standing.lease.deadline_s + LIMIT_S


def test_lease_that_ran_out_leaves_the_license_as_it_was() -> None:
    """Others count from its end, which was the deadline or later."""
    deadline_s = now_s() - 5.0
    standing = FakeStanding(FakeLease(LeaseId(1), deadline_s))
    licenses, member = Licenses(standing), membership()
    licenses.check([member], [])
    licenses.end([member])
    assert member.licensed.until_s == deadline_s + LIMIT_S


def test_void_membership_is_not_licensed_even_by_its_own_lease() -> None:
    """It is over, whatever became of the lease since."""
    licenses = Licenses(FakeStanding(FakeLease(LeaseId(1), 100.0)))
    void = membership(stage=Stage.VOID)
    licenses.check([void], [])
    licenses.renew(void)
    assert void.licensed.story == []


def test_kept_workers_are_licensed_as_long_as_the_node_holds_a_lease() -> None:
    """They wait in no world for an incarnation that may come late, with the only state left."""
    standing = FakeStanding(FakeLease(LeaseId(1), 100.0))
    licenses, kept = Licenses(standing), FakeWorkers([])
    for deadline_s in (100.0, 160.0, 220.0):
        assert standing.lease is not None
        standing.lease.deadline_s = deadline_s
        licenses.check([], [kept])
        assert kept.until_s == deadline_s + LIMIT_S


def test_pools_do_not_hear_of_every_keepalive() -> None:
    """Only of a lease that moved by a second or more."""
    standing = FakeStanding(FakeLease(LeaseId(1), 100.0))
    licenses, member = Licenses(standing), membership()
    for deadline_s in (100.0, 100.4, 100.8, 101.0):
        assert standing.lease is not None
        standing.lease.deadline_s = deadline_s
        licenses.check([member], [])
    assert member.licensed.story == ["licensed", "licensed"]
