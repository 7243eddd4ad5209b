"""The three ways of `elasticd run`: the processes that each starts, and the end of them all."""

import signal
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from elasticd.channel.fork_server import SERVER_VARIABLE
from elasticd.cli.daemons.agent import default_node_id
from elasticd.cli.etcd_flags import open_store
from elasticd.cli.progress.reporter import Reporter
from elasticd.cli.progress.screen import Screen
from elasticd.cli.record_source import RecordSource, open_run
from elasticd.cli.run.agent_call import AgentCalls
from elasticd.cli.run.checkpoint_location import check_location
from elasticd.cli.run.request import RunRequest
from elasticd.control import job_submission
from elasticd.control.job_policy import set_policy
from elasticd.control.local_run.archive import archive, last_records
from elasticd.control.local_run.etcd_guard import EtcdGuard
from elasticd.control.local_run.fork_server import LocalForkServer
from elasticd.control.local_run.last_checkpoint import wait_for_keepers
from elasticd.control.local_run.last_events import wait_for_event_writers
from elasticd.control.local_run.launch import (
    Agents,
    adopt_orphans,
    end_descendants,
    event_writers,
)
from elasticd.control.local_run.run_folder import JobFolder
from elasticd.control.local_run.session import Interrupt, LocalRun, RunNews, exit_code
from elasticd.control.logs.output import HttpFetch, Tail
from elasticd.control.progress import AskRanks, read_goodput
from elasticd.control.report.report import JobReport, job_report, read_job
from elasticd.control.same_job import ignored_flags
from elasticd.errors import ElasticdError, NotFound, Unavailable
from elasticd.records.autoscale.policy import Policy
from elasticd.records.codec import encode
from elasticd.records.ids import NodeId
from elasticd.records.job import JobSpec, JobStatus
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.records.reason import Phase
from elasticd.store.api import KeyValue, Store, StoreSettings
from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from elasticd.store.private_etcd.private_folder import private_folder
from elasticd_agent.pool.fork_server.fork_check import can_be_forked

__all__ = ["Foreground"]

AGENT_GRACE_S = 5.0
"""The time for agents that did not end with their job; by then their workers are gone, or are
killed."""
OUTPUT_END_S = 3.0
TROUBLE_TIMEOUT_S = 1.0
"""The timeout of asking a node which writes etcd refuses: a silent node has another problem."""
LEFTOVER_GRACE_S = 1.0
KEEPER_ANSWER_S = 1.0


class Foreground:
    def __init__(
        self,
        request: RunRequest,
        spec: JobSpec,
        run_folder: Path,
        environ: Mapping[str, str],
        policy: Policy | None = None,
    ) -> None:
        self._request, self._spec, self._run_folder = request, spec, run_folder
        self._policy = policy
        self._environ = environ
        self._keys = Keys(cluster=request.cluster)
        self._screen = Screen(
            is_json=request.is_json, is_quiet=request.is_quiet, term=environ.get("TERM", "")
        )
        self._interrupt = Interrupt()
        self._agents = Agents()
        self._calls = AgentCalls(request, spec, run_folder, environ)
        self._fork_server = LocalForkServer()
        # In in-process mode the script itself waits, and reports state that was not saved.
        self._awaits_checkpoint = spec.checkpoint is not None
        self._writers: Collection[int] = ()
        self._interrupt.kill = lambda: self._agents.signal(signal.SIGKILL)
        for note in request.notes:
            self._screen.note(note)
        for name in request.signals:
            number = signal.Signals[name]
            is_ignored = number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
            if not is_ignored:  # SIGHUP stays ignored under nohup.
                signal.signal(number, self._interrupt.take)

    def local(self) -> int:
        """Run the job on a private etcd and agents of this machine; leave no process behind."""
        folder = JobFolder(self._run_folder, self._spec.name)
        folder.take()
        adopt_orphans()
        with ExitStack() as stack:
            stack.callback(folder.release)
            stack.callback(self._end_rest)
            stack.callback(self._fork_server.close)
            fork_server = self._start_fork_server(folder)
            etcd = EmbeddedEtcd(folder.etcd, is_private=True, env=self._environ)
            stack.callback(etcd.stop)
            etcd.start()
            folder.write_endpoint(etcd.url)
            stack.callback(folder.remove_endpoint)
            settings = StoreSettings(endpoints=(etcd.url,))
            stack.callback(self._agents.stop, AGENT_GRACE_S)
            # Agents import for as long as this process does, so they start before it connects.
            self._agents.start(self._calls.local(settings, fork_server))
            check_location(self._spec.checkpoint, self._environ)
            store = open_store(settings, self._keys)
            stack.callback(store.close)
            job_submission.submit(store, self._keys, self._spec)
            if self._policy is not None:
                set_policy(store, self._keys, self._spec, self._policy)
                stack.enter_context(self._autoscaler(etcd.url, folder))
            status, report = self._follow(store, folder=folder, etcd=etcd)
        self._conclude(status, report, str(folder.path))
        self._bundle(status, lambda: open_run(folder))
        return exit_code(status, self._interrupt.number)

    def join(self) -> int:
        """Serve one job with an agent of this machine, beside other hosts; return the exit code."""
        assert self._request.store is not None
        node = NodeId(self._request.node_id or default_node_id(socket.gethostname()))
        folder = JobFolder(self._run_folder, self._spec.name)
        adopt_orphans()
        with ExitStack() as stack:
            stack.callback(self._end_rest)
            store = open_store(self._request.store, self._keys)
            stack.callback(store.close)
            wanted = self._spec
            check_location(wanted.checkpoint, self._environ)
            self._spec = job_submission.submit_or_join(store, self._keys, wanted)
            for flag in ignored_flags(self._spec, wanted):
                self._screen.note(
                    f"{flag} of this call has no effect: the first host's call counts for all"
                )
            stack.callback(self._agents.stop, AGENT_GRACE_S)
            self._agents.start([self._calls.one(node, self._request.store)])
            status, report = self._follow(store)
        self._conclude(status, report, str(folder.path))
        self._bundle(status, self._cluster, host=node)
        return exit_code(status, self._interrupt.number)

    def submit(self) -> int:
        """Submit the job to the daemons of a cluster; follow the job unless `--detach` is given."""
        assert self._request.store is not None
        name = self._spec.name
        with closing(open_store(self._request.store, self._keys)) as store:
            job_submission.check_room(store, self._keys, self._spec)
            check_location(self._spec.checkpoint, self._environ, is_node=False)
            job_submission.wait_ended(
                store,
                self._keys,
                name,
                on_wait=self._screen.note,
                is_given_up=lambda: self._interrupt.count > 0,
            )
            if self._interrupt.count:  # Etcd or the storage may have been slow to answer.
                self._screen.note(f"interrupted: job {name} was not submitted")
                return 128 + self._interrupt.number
            job_submission.submit(store, self._keys, self._spec)
            if self._policy is not None:
                self._set_policy(store, self._policy)
            told = f"job {name} submitted; `elasticd status {name}` shows it"
            if self._request.is_detached:
                self._screen.submitted(told, self._spec, self._request.store, self._request.cluster)
                return 0
            self._screen.note(f"{told}; Ctrl-C stops it (--detach leaves it running)")
            fetch = HttpFetch(self._request.store)
            status, report = self._follow(store, fetch=fetch)
        self._conclude(status, report, f"on the nodes; `elasticd logs {name}` reads them")
        self._bundle(status, self._cluster)
        return exit_code(status, self._interrupt.number)

    # --- private ------------------------------------------------------------------------------

    def _set_policy(self, store: Store, policy: Policy) -> None:
        """Give the submitted job its policy.

        Raises: ElasticdError: etcd does not take it; the message says what becomes of the job.
        """
        try:
            set_policy(store, self._keys, self._spec, policy)
        except NotFound:
            # It needs none any more; how it ended is told by whoever follows it.
            self._screen.note(f"job {self._spec.name} was over before it had its policy")
        except ElasticdError as exc:
            name, path = self._spec.name, self._request.autoscale
            raise type(exc)(
                f"{exc} Job {name} was submitted and goes on; whether it has its policy is not "
                f"known: `elasticd autoscale set {name} {path}` gives it one, and `elasticd stop "
                f"{name}` ends it."
            ) from exc

    def _follow(
        self,
        store: Store,
        *,
        folder: JobFolder | None = None,
        etcd: EmbeddedEtcd | None = None,
        fetch: HttpFetch | None = None,
    ) -> tuple[JobStatus, JobReport | None]:
        tail = Tail(
            job=self._spec.name,
            run_folder=self._run_folder,
            choice=self._request.console,
            write=self._screen.output,
            own_nodes=self._agents.nodes,
            fetch=fetch,
        )
        ask = AskRanks(self._spec.name, self._request.store)
        reporter = Reporter(
            ask,
            self._screen.progress,
            self._screen.hide_progress,
            is_live=self._screen.is_live,
            goodput=lambda: read_goodput(store, self._keys, self._spec),
        )

        def tell(news: RunNews) -> None:
            reporter.receive(news)
            self._screen.print_news(news)

        guard = EtcdGuard(etcd, self._screen.note) if etcd is not None else lambda: None
        session = LocalRun(
            store,
            self._keys,
            self._spec,
            agents=self._agents if fetch is None else None,
            is_private=etcd is not None,
            tail=tail,
            interrupt=self._interrupt,
            tell=tell,
            look_after=guard,
            trouble=HttpFetch(self._request.store, timeout_s=TROUBLE_TIMEOUT_S).trouble,
        )
        items: Mapping[str, KeyValue] = {}
        status: JobStatus | None = None
        reporter.start()
        try:
            status = session.run()
            self._awaits_checkpoint &= not status.is_in_process
        finally:
            self._writers = event_writers() if self._spec.tensorboard is not None else ()
            reporter.stop()
            tail.finish(OUTPUT_END_S)
            if folder is not None and etcd is not None:
                items = self._keep(store, session.nodes, status, guard)
                self._archive(items, folder, etcd)
        if folder is not None:
            return status, job_report(items.values(), self._keys, self._spec.name)
        with suppress(Unavailable):
            return status, read_job(store, self._keys, self._spec.name)
        return status, None

    def _keep(
        self,
        store: Store,
        nodes: Mapping[NodeId, Node],
        status: JobStatus | None,
        guard: Callable[[], None],
    ) -> Mapping[str, KeyValue]:
        """Collect the private etcd's records, or those that this process knows if etcd is gone."""
        keys, name = self._keys, self._spec.name
        known = {keys.node(node.node): encode(node) for node in nodes.values()}
        known[keys.spec(name)] = encode(self._spec)
        if status is not None:
            known[keys.status(name)] = encode(status)
        items = {
            key: KeyValue(key=key, value=value, mod_revision=0, create_revision=0)
            for key, value in known.items()
        }
        found = last_records(store, keys, name, guard)
        if found is None:
            self._screen.line(
                "the private etcd has ended, and with it the records of the job's changes: `why` "
                "can tell of its end only"
            )
        return items | (found or {})

    def _archive(
        self, items: Mapping[str, KeyValue], folder: JobFolder, etcd: EmbeddedEtcd
    ) -> None:
        """Write the records beside the logs, or to another folder if the disk is full."""
        try:
            with suppress(OSError):
                return archive(items.values(), folder.records)
            etcd.stop()  # This frees its write-ahead log.
            archive(items.values(), folder.records)
        except OSError as exc:
            beside = private_folder()
            why = f"the records cannot be kept in {folder.path} ({exc.strerror})"
            if beside is None:
                return self._screen.line(f"{why}; the logs are there")
            kept = beside / folder.records.name
            with suppress(OSError):
                archive(items.values(), kept)
                why += f": make room and `mv {kept} {folder.path}`, then `status` and `why` find it"
            self._screen.line(why)

    def _end_rest(self) -> None:
        """Wait for the last checkpoint and events, then end all descendants that are left."""
        try:
            if self._spec.tensorboard is not None and not wait_for_event_writers(
                self._screen.line, lambda: self._interrupt.count > 1, known=self._writers
            ):
                self._screen.line(
                    "the last steps were not written for TensorBoard; agents/*.tensorboard.log in "
                    "the run folder says why"
                )
            if self._awaits_checkpoint:
                wait_for_keepers(
                    keeper_progress, self._screen.print_news, lambda: self._interrupt.count > 1
                )
        finally:
            end_descendants(LEFTOVER_GRACE_S)

    def _conclude(self, status: JobStatus, report: JobReport | None, logs: str) -> None:
        if report is not None:
            self._screen.summary(replace(report, status=status), logs)
        self._screen.failure(status)

    def _bundle(
        self,
        status: JobStatus,
        opened: Callable[[], AbstractContextManager[RecordSource]],
        *,
        host: str = "",
    ) -> None:
        """Make a bundle if the job failed and the call asked for a bundle."""
        place = self._request.bundle
        if place is None or status.phase is not Phase.FAILED:
            return
        from elasticd.cli.bundle.failed_run import bundle_failed

        for name in self._request.signals:
            # The job is over, so from now on Ctrl-C gives up only the bundle.
            if signal.getsignal(signal.Signals[name]) is not signal.SIG_IGN:
                signal.signal(signal.Signals[name], signal.default_int_handler)
        bundle_failed(opened, self._spec, place, self._screen, self._environ, host=host)

    @contextmanager
    def _cluster(self) -> Iterator[RecordSource]:
        settings = self._request.store
        assert settings is not None
        with closing(open_store(settings, self._keys)) as store:
            yield RecordSource(
                store=store, keys=self._keys, run_folder=self._run_folder, settings=settings
            )

    def _autoscaler(self, endpoint: str, folder: JobFolder) -> AbstractContextManager[None]:
        from elasticd.cli.run.autoscaler.process import autoscaler  # Few runs need it.

        log_path = folder.path / "agents" / "autoscaler.log"
        self._screen.note(
            f"the job is sized by {self._request.autoscale}; `elasticd autoscale explain "
            f"{self._spec.name}` tells why"
        )
        prometheus, note = self._request.prometheus, self._screen.note
        return autoscaler(endpoint, prometheus, log_path, self._environ, note)

    def _start_fork_server(self, folder: JobFolder) -> str:
        """Start a fork server for all agents, unless the environment names one; return the path of
        its socket, empty if there is none.
        """
        environ = self._calls.environ()
        if not can_be_forked(self._spec, environ):
            return ""
        if given := self._environ.get(SERVER_VARIABLE, ""):
            return given
        log_path = folder.path / "agents" / "fork-server.log"
        return self._fork_server.start(environ, log_path)


def keeper_progress(name: str) -> tuple[int, int]:
    """Ask a keeper for its uploaded bytes and all bytes; zeros if the keeper does not answer."""
    from elasticd.keeper.client import Client
    from elasticd.keeper.wire import message as ms

    with suppress(ElasticdError), closing(Client(name, limit_s=0.0)) as client:
        told = client.ask(ms.GetProgress(), ms.Progress, timeout_s=KEEPER_ANSWER_S)
        return told.done_bytes, told.total_bytes
    return 0, 0
