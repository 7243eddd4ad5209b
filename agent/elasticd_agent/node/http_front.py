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
from elasticd.telemetry.log import recent_lines
from elasticd_agent.http_server.answer import ANSWER_TIMEOUT_S, HttpAnswer, Route
from elasticd_agent.http_server.discovery import Discovery
from elasticd_agent.http_server.listener import HttpListener
from elasticd_agent.http_server.logs import LogFiles, Progress, ProgressAnswers
from elasticd_agent.http_server.probes import Probes
from elasticd_agent.http_server.server import HttpServer
from elasticd_agent.lease.registration import Registration
from elasticd_agent.loop.effect_thread import EffectThread
from elasticd_agent.loop.inbox import Inbox
from elasticd_agent.metrics.sources import Sources
from elasticd_agent.node.readiness import Readiness
from elasticd_agent.settings import AgentSettings

if TYPE_CHECKING:
    from elasticd_agent.http_server.bundle import BundleFiles
    from elasticd_agent.metrics.job_meters import Readings
    from elasticd_agent.metrics.scrape import Scrape

__all__ = ["HttpFront"]


class HttpFront:
    """Serves from the beginning to `close`: all routes on one port, the probes on a second too.

    `progress` answers where a job's ranks stand, on a thread of the server; `readings` is called on
    the owner's thread; `log_folders` has the run folders of jobs that asked for one of their own.
    """

    def __init__(
        self,
        settings: AgentSettings,
        store: Store,
        listener: HttpListener,
        probe_listener: HttpListener | None,
        *,
        inbox: Inbox,
        effect_thread: EffectThread,
        registration: Registration,
        readiness: Readiness,
        log_folders: Mapping[JobName, Path],
        progress: Progress,
        readings: Callable[[], "Readings"],
        requests: RequestTimes | None,
    ) -> None:
        self._sources = Sources(
            settings=settings,
            registration=registration,
            log_folders=log_folders,
            refused_writes=lambda: effect_thread.failed_writes.count,
            busy_s=lambda: inbox.busy_s,
            readings=lambda: inbox.ask(readings, ANSWER_TIMEOUT_S),
            requests=requests,
        )
        self._scrape: Scrape | None = None
        self._settings, self._log_folders = settings, log_folders
        self._bundle: BundleFiles | None = None
        probes = Probes(
            busy_s=lambda: inbox.busy_s,
            is_ready=lambda: not registration.is_fenced,
            why_not_ready=lambda: readiness.why_not,
            trouble=lambda: effect_thread.failed_writes.sentence,
        )
        tls = settings.store
        has_tls = bool(tls.ca_file and tls.cert_file and tls.key_file)
        routes: tuple[Route, ...] = (
            LogFiles(settings.run_folder, log_folders),
            ProgressAnswers(progress),
            probes,
            self._scraped,
            self._bundled,
            Discovery(store.list, settings.cluster, is_tls=has_tls),
        )
        self._servers = [HttpServer(listener, routes)]
        if probe_listener is not None:
            self._servers.append(HttpServer(probe_listener, (probes,)))

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def _scraped(self, path: str, query: str) -> HttpAnswer | None:
        if path != "/metrics":
            return None
        if self._scrape is None:
            # Only now: an agent that nobody scrapes pays nothing for it.
            from elasticd_agent.metrics.scrape import Scrape

            self._scrape = Scrape(self._sources)
        return self._scrape.answer()

    def _bundled(self, path: str, query: str) -> HttpAnswer | None:
        if not path.startswith("/v1/bundle/"):
            return None
        if self._bundle is None:
            from elasticd_agent.http_server.bundle import BundleFiles

            self._bundle = BundleFiles(
                self._settings.run_folder,
                self._log_folders,
                log_lines=recent_lines,
                password=self._settings.store.password,
                environ=self._settings.environ,
            )
        return self._bundle(path, query)
