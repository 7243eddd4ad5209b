"""The services that the agent gives to the runner of a job."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from elasticd.records.ids import Incarnation, NodeId
from elasticd.records.job import JobSpec
from elasticd.records.keys import Keys
from elasticd.rendezvous.state import Me
from elasticd.store.api import Lease, Store
from elasticd_agent.account.account_book import AccountBook
from elasticd_agent.job.job_guard import JobGuard
from elasticd_agent.liveness.monitor import WorkerMonitor
from elasticd_agent.loop.effect_thread import EffectThread
from elasticd_agent.metrics.job_meters import JobMeters
from elasticd_agent.node.presence import Presence
from elasticd_agent.output_monitor.stdout_copy import StdoutCopy
from elasticd_agent.pod.orphans import Children
from elasticd_agent.settings import ForwardedRanks
from elasticd_agent.workers.fork_server_client import ForkServerClient

__all__ = ["AgentServices", "host_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServices:
    """The services that a runner needs from its agent."""

    node: NodeId
    host: str
    address: str
    port: int
    environ: Mapping[str, str] = field(repr=False)
    """The agent's own environment."""
    store: Store
    keys: Keys
    effect_thread: EffectThread
    lease: Callable[[], Lease | None]
    post: Callable[[Callable[[], None]], None]
    """Runs something on the owner's thread."""
    guard: Callable[[Callable[[], None]], None]
    """Runs something of this job; a bug of ours in it ends this job here, and nothing else."""
    children: Children
    fork_server: ForkServerClient | None
    """From which pools are forked; None if each is a program of its own."""
    monitor: WorkerMonitor
    accounts: AccountBook
    run_folder: Path
    """The run folder of this job."""
    event_log: Path | None
    is_for_one_job: bool
    """True if the agent ends when this job cannot be served."""
    meters: JobMeters = field(default_factory=JobMeters)
    forwarding: StdoutCopy = field(default_factory=lambda: StdoutCopy(ForwardedRanks.NONE))

    def me(self, incarnation: Incarnation) -> Me:
        """Return this node's side of its member record, for one life of its membership."""
        return Me(
            node=self.node,
            incarnation=incarnation,
            host=self.host,
            address=self.address,
            port=self.port,
        )


def host_of(
    presence: Presence,
    spec: JobSpec,
    *,
    keys: Keys,
    guard: JobGuard,
    children: Children,
    fork_server: ForkServerClient | None,
    monitor: WorkerMonitor,
    accounts: AccountBook,
    meters: JobMeters,
) -> AgentServices:
    """Put together what this agent gives to one job."""
    settings, registration = presence.settings, presence.registration
    return AgentServices(
        node=settings.node,
        host=settings.host,
        address=settings.address,
        port=presence.peers.port,
        environ=settings.environ,
        store=presence.store,
        keys=keys,
        effect_thread=presence.effect_thread,
        lease=lambda: registration.lease,
        post=guard.post_for(spec.name),
        guard=partial(guard.run, spec.name),
        children=children,
        fork_server=fork_server,
        monitor=monitor,
        accounts=accounts,
        meters=meters,
        forwarding=presence.forwarding,
        run_folder=presence.run_folder_of(spec),
        event_log=settings.event_log,
        is_for_one_job=settings.job is not None,
    )
