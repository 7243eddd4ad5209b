"""What makes this machine a node: its inbox, its lines to etcd and to its peers, its record.

Made before anything that knows of jobs is even imported: an agent is up and registered in a
fraction of the time, and most of what it will need later is loaded while nobody waits for it.
"""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from elasticd.records.ids import JobName, Life, NodeId
from elasticd.records.job import JobSpec
from elasticd.records.keys import Keys
from elasticd.store.api import Store
from elasticd.store.request_times import RequestTimes
from elasticd_agent.courier import Courier
from elasticd_agent.ended_jobs import EndedJobs
from elasticd_agent.http_server.front import ANSWER_TIMEOUT_S, HttpFront
from elasticd_agent.inbox import Inbox
from elasticd_agent.peers import Peers
from elasticd_agent.progress_answer import RankHeard, progress_answer
from elasticd_agent.registration import Registration
from elasticd_agent.settings import AgentSettings
from elasticd_agent.standstill import Standstill

if TYPE_CHECKING:
    from elasticd_agent.metrics.job_meters import Readings

__all__ = ["Presence"]

COURIER_CLOSE_TIMEOUT_S = 2.0


class Presence:
    """Open it, then let an `Agent` serve on it; the hooks are called on its thread.

    Nothing is lost before they are set: whatever calls them waits in the inbox until then.
    """

    on_peer_died: Callable[[NodeId, Life], None]
    on_peer_broke: Callable[[NodeId, Life], None]
    on_lease_lost: Callable[[], None]
    on_lease_found: Callable[[], None]
    on_progress_asked: Callable[[JobName], tuple[RankHeard, ...]]
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
        self.courier = Courier()
        self.peers = Peers(
            settings.node,
            self.life,
            settings.address,
            died=lambda *peer: self.inbox.put(lambda: self.on_peer_died(*peer)),
            broke=lambda *peer: self.inbox.put(lambda: self.on_peer_broke(*peer)),
        )
        self.log_folders: dict[JobName, Path] = {}
        """Of jobs that asked for a run folder of their own."""
        self._ended_jobs = EndedJobs(
            store, Keys(settings.cluster), self.courier, settings.keep_ended_s
        )
        self.registration = Registration(
            settings,
            store,
            self.courier,
            self.life,
            self.inbox.put,
            lost=lambda: self.on_lease_lost(),
            found=lambda: self.on_lease_found(),
            may_renew=Standstill(lambda: self.inbox.busy_s).may_renew,
        )
        self._http = HttpFront(
            settings,
            store,
            inbox=self.inbox,
            courier=self.courier,
            registration=self.registration,
            log_folders=self.log_folders,
            progress=self._progress_of,
            readings=lambda: self.on_metrics_asked(),
            requests=requests,
        )

    def run_folder_of(self, spec: JobSpec) -> Path:
        """Say where a job's workers write; the log server reads there from now on."""
        folder = Path(spec.run_folder) if spec.run_folder else self.settings.run_folder
        self.log_folders[spec.name] = folder
        return folder

    def open(self) -> None:
        """Register this node.

        Raises:
            ElasticdError: etcd cannot be used, or another agent runs under this node's name.
        """
        self.registration.open(self.peers.port, self._http.port)
        if self.settings.job is None:
            self._ended_jobs.open()

    def _progress_of(self, job: JobName) -> bytes | None:
        """Ask the agent where a job's ranks stand; called by a thread of the log server."""
        found = self.inbox.ask(lambda: self.on_progress_asked(job), ANSWER_TIMEOUT_S)
        return progress_answer(found) if found else None

    def close(self) -> None:
        """Say goodbye and end every thread."""
        self._ended_jobs.close()
        self.courier.close(COURIER_CLOSE_TIMEOUT_S)
        self.registration.close()
        self.peers.close()
        self._http.close()
