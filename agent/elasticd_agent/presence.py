"""What makes this machine a node: its inbox, its lines to etcd and to its peers, its record.

Made before anything that knows of jobs is even imported: an agent is up and registered in a
fraction of the time, and most of what it will need later is loaded while nobody waits for it.
"""

import queue
import secrets
from collections.abc import Callable
from pathlib import Path

from elasticd.records.ids import JobName, Life, NodeId
from elasticd.records.job import JobSpec
from elasticd.records.keys import Keys
from elasticd.store.api import Store
from elasticd_agent.courier import Courier
from elasticd_agent.ended_jobs import EndedJobs
from elasticd_agent.http import LogServer
from elasticd_agent.inbox import Inbox
from elasticd_agent.peers import Peers
from elasticd_agent.progress_answer import RankHeard, progress_answer
from elasticd_agent.registration import Registration
from elasticd_agent.settings import AgentSettings
from elasticd_agent.standstill import Standstill

__all__ = ["Presence"]

COURIER_CLOSE_TIMEOUT_S = 2.0
PROGRESS_TIMEOUT_S = 1.0
"""An agent answers in milliseconds, unless it is overloaded or stands still."""


class Presence:
    """Open it, then let an `Agent` serve on it; the hooks are called on its thread.

    Nothing is lost before they are set: whatever calls them waits in the inbox until then.
    """

    on_peer_died: Callable[[NodeId, Life], None]
    on_peer_broke: Callable[[NodeId, Life], None]
    on_lease_lost: Callable[[], None]
    on_lease_found: Callable[[], None]
    on_progress_asked: Callable[[JobName], tuple[RankHeard, ...]]

    def __init__(self, settings: AgentSettings, store: Store) -> None:
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
        self._http = LogServer(
            settings.address,
            settings.run_folder,
            settings.store,
            self._progress_of,
            trouble=lambda: self.courier.failed_writes.sentence,
            folders=self.log_folders,
        )
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
        told: queue.SimpleQueue[tuple[RankHeard, ...]] = queue.SimpleQueue()
        self.inbox.put(lambda: told.put(self.on_progress_asked(job)))
        try:
            found = told.get(timeout=PROGRESS_TIMEOUT_S)
        except queue.Empty:
            return None
        return progress_answer(found) if found else None

    def close(self) -> None:
        """Say goodbye and end every thread."""
        self._ended_jobs.close()
        self.courier.close(COURIER_CLOSE_TIMEOUT_S)
        self.registration.close()
        self.peers.close()
        self._http.close()
