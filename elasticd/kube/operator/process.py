"""The process of an operator: its thread, its port, and its observations while it leads."""

from elasticd.errors import ElasticdError, Unavailable
from elasticd.kube.api.kubernetes_api import KubernetesApi
from elasticd.kube.api.port import ELASTIC_JOBS, NAMESPACES, NODES, PODS, Api
from elasticd.kube.operator.cluster_objects import AGENT_LABELS, cluster_identity
from elasticd.kube.operator.counts import OperatorCounts
from elasticd.kube.operator.journal_file import JournalFile
from elasticd.kube.operator.measurement import Measurements
from elasticd.kube.operator.reconciliation import Reconciliation
from elasticd.kube.operator.write.hold import Holds
from elasticd.kube.resource.name import other_cluster, owner_prefix
from elasticd.leader.daemon import Daemon
from elasticd.leader.election import LEASE_TTL_S, Term
from elasticd.leader.handover import Handover
from elasticd.leader.http_server import MetricsServer
from elasticd.records.keys import Keys
from elasticd.store.api import Store, StoreSettings
from elasticd.telemetry.log import get_logger

__all__ = ["OperatorProcess", "check_server"]

PERIOD_S = 2.0
"""The time in seconds between two evaluations if nothing changes, for actions that are due by time
alone."""
GAP_S = 0.1
"""The shortest pause in seconds between two evaluations, so that one evaluation serves many
changes."""

log = get_logger()


class OperatorProcess:
    """One operator. One thread calls `run`; any thread or signal handler may call `stop`."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        api: Api,
        settings: StoreSettings | None,
        counts: OperatorCounts,
        *,
        namespace: str = "",
        ttl_s: float = LEASE_TTL_S,
        journal: JournalFile | None = None,
        listen: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        """`settings` are those of etcd, whose certificates the agents' servers use too.

        Raises: EnvironmentProblem: the address does not belong to this machine, or the port is in
        use.
        """
        self._store, self._keys, self._api = store, keys, api
        self._counts, self._settings, self._namespace = counts, settings, namespace
        self._journal = journal
        self._current: Reconciliation | None = None
        self._identity, self._identity_hold = "", Holds()
        self._daemon = Daemon(
            store,
            keys.operator_election(namespace),
            self._begin,
            period_s=PERIOD_S,
            gap_s=GAP_S,
            ttl_s=ttl_s,
            told_lead=self._told_lead,
            source=self._source,
            # A user may want to delete an object by force while etcd is away.
            evaluates_unsure=True,
            handover=Handover(
                keys.operator_offer(namespace),
                is_unable=self._is_blind,
                can_lead=self._can_take_over,
            ),
        )
        self._server = MetricsServer(
            *listen,
            counts,
            whose="operator",
            is_alive=self._daemon.is_alive,
            why_unready=self._why_unready,
        )

    @property
    def port(self) -> int:
        """Return the port of metrics and probes."""
        return self._server.port

    @property
    def leads(self) -> bool:
        return self._daemon.leads

    def run(self) -> None:
        """Serve until `stop` is called, then resign from the election."""
        self._daemon.run()

    def stop(self) -> None:
        self._daemon.stop()

    def close(self) -> None:
        """Free the port."""
        self._server.close()

    # --- private ------------------------------------------------------------------------------

    def _begin(self, term: Term) -> Reconciliation:
        self._current = Reconciliation(
            self._store,
            self._keys,
            self._api,
            term,
            self._counts,
            Measurements(self._settings),
            self._daemon.wake,
            namespace=self._namespace,
            journal=self._journal,
        )
        return self._current

    def _is_blind(self) -> bool:
        return self._current is not None and self._current.is_blind

    def _can_take_over(self) -> bool:
        """Return whether the API server answers what a leader lists, and is that of the leader.

        Each of these answers is a short one.
        """
        try:
            for kind in (ELASTIC_JOBS, NODES, PODS):
                namespace = self._namespace if kind == ELASTIC_JOBS else ""
                self._api.list(kind, namespace=namespace, name="kube-system")
            identity = cluster_identity(self._api)
        except ElasticdError as exc:
            log.debug("lead.not_taken_over", why=str(exc))
            return False
        leader = self._daemon.leader
        return leader is not None and not other_cluster(leader.source, identity)

    def _told_lead(self, is_leader: bool) -> None:
        self._counts.leads(is_leader)
        self._read_identity()

    def _source(self) -> str:
        """Return the identity of the Kubernetes cluster; empty if the API server does not say."""
        self._read_identity()
        return owner_prefix(self._identity) if self._identity else ""

    def _read_identity(self) -> None:
        if not self._identity and not self._identity_hold.is_held("identity"):
            try:
                self._identity = cluster_identity(self._api)
            except ElasticdError as exc:  # The leader reports this error.
                self._identity_hold.refused("identity", exc)

    def _why_unready(self) -> str:
        """Return why the process cannot work; a process that stands by is ready to lead."""
        if self._daemon.trouble:
            return self._daemon.trouble
        leader = self._daemon.leader
        other = other_cluster(leader.source, self._identity) if leader and self._identity else ""
        if other:
            return (
                f"The operator {leader.name if leader else ''} of another Kubernetes cluster (the "
                f"uid of its kube-system is {other}) leads in this etcd, so this one serves no "
                "ElasticJob: give each Kubernetes cluster a --cluster of its own."
            )
        current = self._current
        return current.trouble if self._daemon.leads and current is not None else ""


def check_server(api: KubernetesApi, namespace: str) -> None:
    """Check that the API server is suitable, so that a wrong server is reported at once.

    A server that is away does not end the process: the operator waits for the server, as it does
    later.

    Raises: CallError: the CRD is missing or is another one, or a right is missing; the message says
    what to do.
    """
    try:
        api.check(ELASTIC_JOBS, ("status", "scale"))
        api.list(ELASTIC_JOBS, namespace=namespace)
        api.list(NODES)
        api.list(PODS, labels=AGENT_LABELS)
        api.list(NAMESPACES, name="kube-system")
    except Unavailable as exc:
        log.warning("api_server.lost", why=str(exc))
