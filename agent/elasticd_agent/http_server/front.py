"""The servers of one agent, and where their answers come from.

No route waits for the owner's thread for longer than a second, and that thread waits for none: it
answers what is put into its inbox.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from elasticd.records.ids import JobName
from elasticd.store.api import Store
from elasticd.store.request_times import RequestTimes
from elasticd_agent.courier import Courier
from elasticd_agent.http_server.answer import Answer, Route
from elasticd_agent.http_server.discovery import Discovery
from elasticd_agent.http_server.logs import LogFiles, Progress, ProgressAnswers
from elasticd_agent.http_server.probes import Probes
from elasticd_agent.http_server.server import HttpServer
from elasticd_agent.inbox import Inbox
from elasticd_agent.metrics.sources import Sources
from elasticd_agent.registration import Registration
from elasticd_agent.settings import AgentSettings

if TYPE_CHECKING:
    from elasticd_agent.metrics.job_meters import Readings
    from elasticd_agent.metrics.scrape import Scrape

__all__ = ["ANSWER_TIMEOUT_S", "HttpFront"]

ANSWER_TIMEOUT_S = 1.0
"""An agent answers in milliseconds, unless it is overloaded or stands still."""


class HttpFront:
    """Serves from the beginning to `close`.

    `progress` answers where a job's ranks stand, on a thread of the server; `readings` is called on
    the owner's thread; `log_folders` has the run folders of jobs that asked for one of their own.
    """

    def __init__(
        self,
        settings: AgentSettings,
        store: Store,
        *,
        inbox: Inbox,
        courier: Courier,
        registration: Registration,
        log_folders: Mapping[JobName, Path],
        progress: Progress,
        readings: Callable[[], "Readings"],
        requests: RequestTimes | None,
    ) -> None:
        """Begin to listen.

        Raises:
            EnvironmentProblem: the address is not this machine's, or a port is taken.
        """
        self._sources = Sources(
            settings=settings,
            registration=registration,
            log_folders=log_folders,
            refused_writes=lambda: courier.failed_writes.count,
            busy_s=lambda: inbox.busy_s,
            readings=lambda: inbox.ask(readings, ANSWER_TIMEOUT_S),
            requests=requests,
        )
        self._scrape: Scrape | None = None
        probes = Probes(
            busy_s=lambda: inbox.busy_s,
            is_ready=lambda: not registration.is_fenced,
            trouble=lambda: courier.failed_writes.sentence,
        )
        tls = settings.store
        has_tls = bool(tls.ca_file and tls.cert_file and tls.key_file)
        routes: tuple[Route, ...] = (
            LogFiles(settings.run_folder, log_folders),
            ProgressAnswers(progress),
            probes,
            self._scraped,
            Discovery(store.list, settings.cluster, is_tls=has_tls),
        )
        self._server = HttpServer(settings.address, routes, tls, port=settings.http_port)
        self._probe_server: HttpServer | None = None
        if settings.probe_port:
            try:
                self._probe_server = HttpServer(
                    settings.address, (probes,), port=settings.probe_port, flag="--probe-port"
                )
            except BaseException:
                self._server.close()
                raise

    @property
    def port(self) -> int:
        """Of the server that has all routes."""
        return self._server.port

    def close(self) -> None:
        self._server.close()
        if self._probe_server is not None:
            self._probe_server.close()

    def _scraped(self, path: str, query: str) -> Answer | None:
        if path != "/metrics":
            return None
        if self._scrape is None:
            # Only now: an agent that nobody scrapes pays nothing for it.
            from elasticd_agent.metrics.scrape import Scrape

            self._scrape = Scrape(self._sources)
        return self._scrape.answer()
