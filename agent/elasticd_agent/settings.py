"""The settings that an agent gets at its start."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from elasticd.records.ids import JobName, NodeId
from elasticd.store.api import NODE_LEASE_TTL_S, StoreSettings

__all__ = ["AgentSettings", "ForwardedRanks"]


class ForwardedRanks(StrEnum):
    """The ranks whose output an agent copies to its own stdout."""

    NONE = "none"
    RANK_0 = "rank0"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The settings of one agent, frozen.

    The command line alone reads them from flags and environment.
    """

    node: NodeId
    host: str
    """The name for people, shown in errors and tables."""
    address: str
    """Where peers and workers of other nodes reach this machine (IP or resolvable name)."""
    store: StoreSettings
    environ: Mapping[str, str] = field(repr=False)
    """The agent's own environment, which pools, workers, keepers and event writers get without what
    opens etcd. It may hold credentials of a storage, so it is never shown."""
    cluster: str = "default"
    slots: int = 1
    """Workers that this node can hold at once."""
    run_folder: Path
    """Logs of workers go to `<run folder>/<job>/gen-<n>/`, the agent's own state beside them."""
    job: JobName | None = None
    """The only job to serve, with which the agent ends (`elasticd run`); None for a daemon that
    serves all."""
    keep_ended_s: float = 7 * 86400.0
    """How long records of jobs that are over are kept, in seconds; 0 for ever."""
    lease_ttl_s: float = NODE_LEASE_TTL_S
    """How long the loss of this node may go unnoticed, in seconds; etcd grants no less than 2 s."""
    http_port: int = 0
    """The port of logs, metrics and service discovery; 0 for a free one."""
    probe_port: int = 0
    """The port at which a supervisor without a certificate may ask how the agent is; 0 for none."""
    keeper_wait_s: float = 0.0
    """How long the agent waits for its keepers at its own end, where they would end with it."""
    fork_server: str = ""
    """The socket of the fork server of this machine; empty: the agent starts its own."""
    forwarded: ForwardedRanks = ForwardedRanks.NONE
    labels: Mapping[str, str] = field(default_factory=dict)
    event_log: Path | None = None
    """The folder for the events and effects of each job, to replay them (a debugging aid)."""

    @property
    def search_path(self) -> str:
        """The agent's PATH."""
        return self.environ.get("PATH", os.defpath)
