"""The agent: one owner thread that holds all state, and the feeders that bring it facts.

The loop is the whole scheduler: take the next item, run it, look at the lease, wake what is due.
Nothing that runs here waits for the network or a disk that could hang.
"""

import os
import secrets
import signal

import structlog

import elasticd
from elasticd.errors import ElasticdError, NotSupported, Refused
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName, Life, incarnation_of
from elasticd.records.job import Active, JobSpec
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.records.reason import Reason
from elasticd.rendezvous import event as ev
from elasticd.store.api import Changed as StoreChanged
from elasticd.store.api import KeyRange, Lease, Put, Snapshot, Store, Txn
from elasticd_agent.clock import now_s
from elasticd_agent.courier import Courier
from elasticd_agent.http import LogServer
from elasticd_agent.inbox import Inbox
from elasticd_agent.lifecycle import Claim, allot
from elasticd_agent.peers import Peers, is_refused
from elasticd_agent.runner import Host, Runner
from elasticd_agent.settings import AgentSettings

__all__ = ["Agent"]

LICENSE_STEP_S = 1.0
"""How far the lease must have moved before the pools hear of it."""
GOODBYE_MARGIN_S = 5.0

log = structlog.get_logger()


class Agent:
    """One node's daemon. `run` blocks until it is told to end, or its only job is over."""

    def __init__(self, settings: AgentSettings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._keys = Keys(settings.cluster)
        self._life = Life(secrets.token_hex(4))
        self._incarnations = 0
        self._inbox = Inbox()
        self._courier = Courier()
        self._lease: Lease | None = None
        self._is_fenced = False
        self._licensed_s = 0.0
        self._specs: dict[JobName, tuple[JobSpec, int]] = {}
        self._runners: dict[JobName, Runner] = {}
        self._rejoin_s: dict[JobName, float] = {}
        self._is_draining = False
        self._ending: Reason | None = None
        self._end_by_s: float | None = None
        self._error = ""
        self._is_dirty = False

    def run(self) -> int:
        """Serve until the end; returns the exit code.

        Raises:
            ElasticdError: etcd cannot be used, or another agent runs under this node's name.
        """
        self._peers = Peers(
            self._settings.node,
            self._life,
            self._settings.address,
            lambda node, life: self._inbox.put(lambda: self._peer_died(node, life)),
        )
        self._http = LogServer(
            self._settings.address, self._settings.run_folder, self._settings.store
        )
        self._refuse_twin()
        self._register(self._store.grant(self._settings.lease_ttl_s, self._lease_lost))
        previous = [
            (number, signal.signal(number, self._signalled))
            for number in (signal.SIGTERM, signal.SIGINT)
        ]
        watches = [
            self._store.watch(KeyRange(key=self._keys.active, is_prefix=True), self._active_seen),
            self._store.watch(
                KeyRange(key=self._keys.drain(self._settings.node)), self._drain_seen
            ),
        ]
        try:
            while not self._is_done():
                self._turn()
        finally:
            for watch in watches:
                watch.close()
            self._shut_down()
            for number, handler in previous:
                signal.signal(number, handler)
        if self._error:
            log.error("agent.failed", why=self._error)
        return 1 if self._error else 0

    # --- the loop -----------------------------------------------------------------------------

    def _turn(self) -> None:
        item = self._inbox.take(self._until_wake_s())
        # First of all: this process may have been stopped for longer than its lease.
        self._check_lease()
        if item is not None:
            item()
        at_s = now_s()
        for runner in list(self._runners.values()):
            wake = runner.wake_s()
            if wake is not None and wake <= at_s:
                runner.tick()
        for job in [job for job, due_s in self._rejoin_s.items() if due_s <= at_s]:
            del self._rejoin_s[job]
            self._is_dirty = True
        if self._is_dirty:
            self._is_dirty = False
            self._settle()

    def _until_wake_s(self) -> float | None:
        times = [runner.wake_s() for runner in self._runners.values()]
        times += list(self._rejoin_s.values())
        times.append(self._end_by_s)
        if self._lease is not None and not self._is_fenced:
            times.append(self._lease.deadline_s)
        elif self._lease is not None:
            times.append(now_s() + 0.2)
        wake = min((t for t in times if t is not None), default=None)
        return None if wake is None else max(0.0, wake - now_s())

    def _is_done(self) -> bool:
        if self._error:
            return True
        if self._end_by_s is not None and now_s() >= self._end_by_s:
            log.warning("agent.end_forced", jobs=sorted(self._runners))
            return True
        return self._ending is not None and not self._runners

    # --- the lease ----------------------------------------------------------------------------

    def _check_lease(self) -> None:
        lease = self._lease
        is_fenced = lease is None or now_s() >= lease.deadline_s
        if is_fenced != self._is_fenced:
            self._is_fenced = is_fenced
            for runner in list(self._runners.values()):
                runner.feed(ev.LeaseUncertain() if is_fenced else ev.LeaseHeld())
        if lease is not None and lease.deadline_s - self._licensed_s >= LICENSE_STEP_S:
            self._licensed_s = lease.deadline_s
            for runner in self._runners.values():
                self._license(runner)

    def _license(self, runner: Runner) -> None:
        if self._lease is not None:
            runner.workers.allow_until(self._lease.deadline_s + runner.spec.isolation_limit_s)

    def _lease_lost(self) -> None:
        """Called by the store's thread: etcd says that the lease is over."""
        self._inbox.put(self._reincarnate)

    def _reincarnate(self) -> None:
        log.warning("lease.lost")
        self._lease = None
        self._check_lease()
        for runner in list(self._runners.values()):
            runner.feed(ev.LeaseEnded())
        self._grant_again()

    def _grant_again(self) -> None:
        if self._ending is not None:
            return
        self._courier.send(
            lambda: self._store.grant(self._settings.lease_ttl_s, self._lease_lost),
            lambda lease: self._inbox.put(lambda: self._register_later(lease)),
            lambda exc: self._inbox.put(self._grant_again),
        )

    def _register_later(self, lease: Lease) -> None:
        self._lease = lease
        self._courier.send(
            lambda: self._put_node(lease),
            lambda _: None,
            lambda exc: log.error("node.not_registered", why=str(exc)),
        )
        self._is_dirty = True

    def _register(self, lease: Lease) -> None:
        self._lease = lease
        self._put_node(lease)
        log.info(
            "node.registered", node=self._settings.node, life=self._life, ttl_seconds=lease.ttl_s
        )

    def _put_node(self, lease: Lease) -> None:
        settings = self._settings
        node = Node(
            node=settings.node,
            incarnation=incarnation_of(self._life, 0),
            host=settings.host,
            address=settings.address,
            port=self._peers.port,
            http_port=self._http.port,
            slots=settings.slots,
            labels=settings.labels,
            version=elasticd.__version__,
            pid=os.getpid(),
            boot_id=_boot_id(),
            is_draining=self._is_draining,
        )
        put = Put(key=self._keys.node(settings.node), value=encode(node), lease=lease.id)
        self._store.commit(Txn(then=(put,)))

    def _refuse_twin(self) -> None:
        """Two agents of one name would fight over one record: the second one does not start."""
        item = self._store.get(self._keys.node(self._settings.node))
        if item is None:
            return
        other = decode(Node, item.value)
        if not is_refused(other.address, other.port) and _is_listening(other):
            raise Refused(
                f"Node {other.node!r} is already served by an agent at {other.address}:"
                f"{other.port} (pid {other.pid} on {other.host}): stop that one, or give this "
                "one another --node-id."
            )

    # --- facts about the node -----------------------------------------------------------------

    def _active_seen(self, seen: Snapshot | StoreChanged) -> None:
        """Called by the store's thread: which jobs are not over."""
        if isinstance(seen, Snapshot):
            known = {item.key: item for item in seen.items}
            self._inbox.put(lambda: self._jobs_listed(set(known)))
            items = list(seen.items)
        else:
            items = [change.item for change in seen.changes if change.item is not None]
            gone = [change.key for change in seen.changes if change.item is None]
            for key in gone:
                self._inbox.put(lambda key=key: self._job_gone(key))  # type: ignore[misc]
        for item in items:
            job = JobName(item.key.removeprefix(self._keys.active))
            if self._settings.job not in (None, job):
                continue
            try:
                is_ready = decode(Active, item.value).is_ready
            except NotSupported as exc:
                log.error("job.refused", job=job, why=str(exc))
                continue
            if is_ready:
                self._inbox.put(
                    lambda job=job, order=item.create_revision: self._fetch(job, order)  # type: ignore[misc]
                )

    def _fetch(self, job: JobName, order: int) -> None:
        def read() -> JobSpec | None:
            item = self._store.get(self._keys.spec(job))
            return None if item is None else decode(JobSpec, item.value)

        def failed(exc: ElasticdError) -> None:
            log.error("job.refused", job=job, why=str(exc))
            if self._settings.job is not None:
                self._inbox.put(lambda: self._fail(str(exc)))

        self._courier.send(
            read, lambda spec: self._inbox.put(lambda: self._spec_read(job, spec, order)), failed
        )

    def _spec_read(self, job: JobName, spec: JobSpec | None, order: int) -> None:
        if spec is None or (spec.is_local and self._settings.job != job):
            return
        self._specs[job] = (spec, order)
        self._is_dirty = True

    def _jobs_listed(self, keys: set[str]) -> None:
        for job in [job for job in self._specs if self._keys.active_job(job) not in keys]:
            self._job_gone(self._keys.active_job(job))

    def _job_gone(self, key: str) -> None:
        job = JobName(key.removeprefix(self._keys.active))
        self._specs.pop(job, None)
        self._rejoin_s.pop(job, None)
        if job == self._settings.job:
            self._ending = self._ending or Reason.NODE_LEFT
        self._is_dirty = True

    def _drain_seen(self, seen: Snapshot | StoreChanged) -> None:
        if isinstance(seen, Snapshot):
            is_draining = bool(seen.items)
        else:
            is_draining = seen.changes[-1].item is not None
        self._inbox.put(lambda: self._drain(is_draining))

    def _drain(self, is_draining: bool) -> None:
        if is_draining == self._is_draining:
            return
        log.info("node.draining" if is_draining else "node.undrained", node=self._settings.node)
        self._is_draining = is_draining
        if self._lease is not None:
            self._register_later(self._lease)
        if is_draining:
            for runner in list(self._runners.values()):
                runner.feed(ev.LeaveRequested(reason=Reason.DRAINED))
        self._is_dirty = True

    def _peer_died(self, node: str, life: Life) -> None:
        log.warning("peer.died", node=node, life=life)
        for runner in list(self._runners.values()):
            runner.feed(ev.PeerDied(node=node, life=life))  # type: ignore[arg-type]

    # --- jobs on this node --------------------------------------------------------------------

    def _settle(self) -> None:
        """Bring the runners into line with the jobs, the slots and our own state."""
        for job, runner in list(self._runners.items()):
            if runner.retired is not None:
                self._bury(job, runner)
        if self._ending is None and not self._is_draining and self._lease is not None:
            self._allot()
        self._peers.hold(
            tuple({p.life: p for r in self._runners.values() for p in r.peers}.values())
        )

    def _bury(self, job: JobName, runner: Runner) -> None:
        retired = runner.retired
        assert retired is not None
        del self._runners[job]
        runner.close(timeout_s=5.0)
        if retired.error and self._settings.job == job:
            self._fail(retired.error)
        elif retired.is_job_over or job not in self._specs or retired.rejoin_after_s is None:
            self._specs.pop(job, None)
            if self._settings.job == job:
                self._ending = self._ending or Reason.NODE_LEFT
        else:
            jitter_s = secrets.randbelow(200) / 1000
            self._rejoin_s[job] = now_s() + retired.rejoin_after_s + jitter_s

    def _allot(self) -> None:
        claims = [self._claim(job, spec, order) for job, (spec, order) in self._specs.items()]
        given = allot([c for c in claims if c is not None], self._settings.slots)
        for job, slots in given.items():
            runner = self._runners.get(job)
            spec, order = self._specs[job]
            if runner is None and slots:
                self._join(job, spec, order, slots)
            elif runner is not None and not slots:
                runner.feed(ev.LeaveRequested(reason=Reason.NODE_LEFT))
            elif runner is not None and slots != runner.state.slots:
                runner.feed(ev.SlotsGranted(slots=slots))

    def _claim(self, job: JobName, spec: JobSpec, order: int) -> Claim | None:
        runner = self._runners.get(job)
        if runner is None:
            if job in self._rejoin_s:
                return None
            return Claim(job=job, order=order, wanted=spec.workers_per_node)
        return Claim(
            job=job,
            order=order,
            wanted=spec.workers_per_node,
            held=runner.state.slots,
            is_working=runner.is_working or runner.state.leaving is not None,
            is_spare=runner.is_spare,
        )

    def _join(self, job: JobName, spec: JobSpec, order: int, slots: tuple) -> None:  # type: ignore[type-arg]
        self._incarnations += 1
        incarnation = incarnation_of(self._life, self._incarnations)
        log.info("job.joined", job=job, incarnation=incarnation, slots=len(slots))
        host = Host(
            node=self._settings.node,
            host=self._settings.host,
            address=self._settings.address,
            port=self._peers.port,
            store=self._store,
            keys=self._keys,
            courier=self._courier,
            lease=lambda: self._lease,
            post=self._inbox.put,
            run_folder=self._settings.run_folder,
            event_log=self._settings.event_log,
        )
        runner = Runner(host, spec, order, incarnation, slots, lambda _: self._mark_dirty())
        self._runners[job] = runner
        self._license(runner)

    def _mark_dirty(self) -> None:
        self._is_dirty = True

    # --- the end ------------------------------------------------------------------------------

    def _signalled(self, number: int, frame: object) -> None:
        self._inbox.put(lambda: self._end(signal.Signals(number).name))

    def _end(self, name: str) -> None:
        """The first signal says goodbye and gives workers their grace, the second ends now."""
        if self._ending is not None and self._end_by_s is not None:
            self._end_by_s = now_s()
            return
        log.info("agent.ending", signal=name)
        self._ending = Reason.NODE_LEFT
        grace_s = max((r.spec.shutdown_timeout_s for r in self._runners.values()), default=0.0)
        self._end_by_s = now_s() + grace_s + GOODBYE_MARGIN_S
        for runner in list(self._runners.values()):
            runner.feed(ev.LeaveRequested(reason=Reason.NODE_LEFT))
        self._is_dirty = True

    def _fail(self, why: str) -> None:
        self._error = self._error or why

    def _shut_down(self) -> None:
        for runner in self._runners.values():
            runner.close(timeout_s=5.0)
        self._courier.close(timeout_s=2.0)
        if self._lease is not None:
            lease = self._lease
            try:
                lease.revoke()
            except ElasticdError:
                lease.close()
        self._peers.close()
        self._http.close()
        log.info("agent.ended", node=self._settings.node)


def _is_listening(node: Node) -> bool:
    import socket

    try:
        socket.create_connection((node.address, node.port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
