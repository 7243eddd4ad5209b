"""What makes this machine a node: its inbox, its lines to etcd and to its peers, its record.

It is made before any module that knows of jobs, or serves HTTP, is imported. So an agent is
registered in a fraction of the time, and most modules that it needs later are loaded while nobody
waits.
"""

import secrets
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING

from elasticd.records.ids import JobName, Life, NodeId
from elasticd.records.job import JobSpec
from elasticd.records.keys import Keys
from elasticd.store.api import Store
from elasticd.store.request_times import RequestTimes
from elasticd_agent.http_server.answer import ANSWER_TIMEOUT_S
from elasticd_agent.http_server.listener import HttpListener
from elasticd_agent.lease.peer_links import PeerLinks
from elasticd_agent.lease.registration import Registration
from elasticd_agent.loop.effect_thread import EffectThread
from elasticd_agent.loop.inbox import Inbox
from elasticd_agent.loop.owner_watchdog import OwnerWatchdog
from elasticd_agent.node.readiness import Readiness
from elasticd_agent.output_monitor.stdout_copy import StdoutCopy
from elasticd_agent.settings import AgentSettings

if TYPE_CHECKING:
    from elasticd_agent.liveness.progress_answer import RankState
    from elasticd_agent.metrics.job_meters import Readings
    from elasticd_agent.node.ended_jobs import EndedJobs
    from elasticd_agent.node.http_front import HttpFront

__all__ = ["Presence"]

EFFECT_THREAD_CLOSE_TIMEOUT_S = 2.0
SLOW_S = 1.0
"""A registration that takes longer waits for something."""


class Presence:
    """Open it, then let an `Agent` serve on it; the hooks are called on its thread.

    No event is lost before the hooks are set: calls of them wait in the inbox until then.
    """

    on_peer_died: Callable[[NodeId, Life], None]
    on_peer_broke: Callable[[NodeId, Life], None]
    on_lease_lost: Callable[[], None]
    on_lease_found: Callable[[], None]
    on_progress_asked: "Callable[[JobName], tuple[RankState, ...]]"
    on_metrics_asked: "Callable[[], Readings]"

    def __init__(
        self, settings: AgentSettings, store: Store, requests: RequestTimes | None = None
    ) -> None:
        """Begin to listen; `requests`: how long the store's calls to etcd took.

        Raises:
            EnvironmentProblem: an address or a port cannot be listened on.
        """
        self.settings, self.store = settings, store
        self.life = Life(secrets.token_hex(4))
        self.inbox = Inbox()
        self.readiness = Readiness()
        self.effect_thread = EffectThread()
        self.forwarding = StdoutCopy(settings.forwarded)
        self.peers = PeerLinks(
            settings.node,
            self.life,
            settings.address,
            died=lambda *peer: self.inbox.put(lambda: self.on_peer_died(*peer)),
            broke=lambda *peer: self.inbox.put(lambda: self.on_peer_broke(*peer)),
        )
        self.log_folders: dict[JobName, Path] = {}
        """The run folders of jobs that asked for one of their own."""
        self._ended_jobs: EndedJobs | None = None
        self._pruning: EffectThread | None = None
        """Thousands of jobs that are over are as many writes, which must hold up none of a job."""
        self._requests = requests
        self.registration = Registration(
            settings,
            store,
            self.effect_thread,
            self.life,
            self.inbox.put,
            lost=lambda: self.on_lease_lost(),
            found=lambda: self.on_lease_found(),
            may_renew=OwnerWatchdog(lambda: self.inbox.busy_s).may_renew,
        )
        self._http: HttpFront | None = None
        self._serving = Lock()
        tls = settings.store
        self._listener = HttpListener(settings.address, tls, port=settings.http_port)
        self._probe_listener: HttpListener | None = None
        if settings.probe_port:
            try:
                self._probe_listener = HttpListener(
                    settings.address, port=settings.probe_port, flag="--probe-port"
                )
            except BaseException:
                self._listener.close()
                raise

    def run_folder_of(self, spec: JobSpec) -> Path:
        """Say where a job's workers write; the log server reads there from now on."""
        folder = Path(spec.run_folder) if spec.run_folder else self.settings.run_folder
        self.log_folders[spec.name] = folder
        return folder

    def open(self) -> None:
        """Register this node, then begin to answer over HTTP.

        Raises:
            ElasticdError: etcd cannot be used, or another agent runs under this node's name.
        """
        # Its probes are answered also while it waits, as for the lease of the agent before it.
        waiting = Timer(SLOW_S, self._serve)
        waiting.daemon = True
        waiting.start()
        try:
            self.registration.open(self.peers.port, self._listener.port)
        finally:
            waiting.cancel()
            waiting.join()
        self._serve()
        # Only now, like what serves HTTP: both take a seventh of the whole start to import.
        from elasticd_agent.node.ended_jobs import EndedJobs

        if self.settings.job is None:
            self._pruning = EffectThread()
            self._ended_jobs = EndedJobs(
                self.store,
                Keys(self.settings.cluster),
                self._pruning,
                self.settings.keep_ended_s,
            )
            self._ended_jobs.open()

    def _serve(self) -> None:
        """Answer over HTTP, if nothing does yet; another thread may be about to."""
        with self._serving:
            if self._http is not None:
                return
            from elasticd_agent.node.http_front import HttpFront

            self._http = HttpFront(
                self.settings,
                self.store,
                self._listener,
                self._probe_listener,
                inbox=self.inbox,
                effect_thread=self.effect_thread,
                registration=self.registration,
                readiness=self.readiness,
                log_folders=self.log_folders,
                progress=self._progress_of,
                readings=lambda: self.on_metrics_asked(),
                requests=self._requests,
            )

    def _progress_of(self, job: JobName) -> bytes | None:
        """Ask the agent where a job's ranks stand; called by a thread of the log server."""
        from elasticd_agent.liveness.progress_answer import progress_answer

        found = self.inbox.ask(lambda: self.on_progress_asked(job), ANSWER_TIMEOUT_S)
        return progress_answer(found) if found else None

    def close(self) -> None:
        """Say goodbye and end every thread."""
        if self._ended_jobs is not None:
            self._ended_jobs.close()
        self.forwarding.close()
        if self._pruning is not None:
            self._pruning.close(0.0)
        self.effect_thread.close(EFFECT_THREAD_CLOSE_TIMEOUT_S)
        self.registration.close()
        self.peers.close()
        if self._http is not None:
            self._http.close()
        for listener in (self._listener, self._probe_listener):
            if listener is not None:
                listener.close()
