"""What an agent is told at its start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from elasticd.records.ids import JobName, NodeId
from elasticd.store.api import StoreSettings

__all__ = ["AgentSettings", "ForwardedRanks"]


class ForwardedRanks(StrEnum):
    """Whose output an agent copies to its own stdout."""

    NONE = "none"
    RANK_0 = "rank0"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Frozen; read from flags and environment by the command line, nowhere else."""

    node: NodeId
    host: str
    """For people: shown in errors and tables."""
    address: str
    """Where peers and workers of other nodes reach this machine (IP or resolvable name)."""
    store: StoreSettings
    cluster: str = "default"
    slots: int = 1
    """Workers that this node can hold at once."""
    run_folder: Path
    """Logs of workers go to `<run folder>/<job>/gen-<n>/`, the agent's own state beside them."""
    job: JobName | None = None
    """Serve this job only and end with it (`elasticd run`); None: a daemon that serves all."""
    keep_ended_s: float = 7 * 86400.0
    """Records of jobs that are over are removed after this long; 0: never."""
    lease_ttl_s: float = 5.0
    """Loss of this node is noticed after this long at the latest; etcd grants no less than 2 s."""
    http_port: int = 0
    """Where logs, metrics and service discovery are served; 0: a free port."""
    probe_port: int = 0
    """Where a supervisor without a certificate may ask how the agent is; 0: nowhere."""
    keeper_wait_s: float = 0.0
    """At its end the agent waits so long for its keepers; what ends with it ends them too."""
    forwarded: ForwardedRanks = ForwardedRanks.NONE
    labels: Mapping[str, str] = field(default_factory=dict)
    event_log: Path | None = None
    """Where to record events and effects of each job, to replay them (a debugging aid)."""
