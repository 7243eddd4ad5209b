"""What one job on this node is given by the agent that serves it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elasticd.records.ids import NodeId
from elasticd.records.keys import Keys
from elasticd.store.api import Lease, Store
from elasticd_agent.courier import Courier
from elasticd_agent.lookout import Lookout
from elasticd_agent.orphans import Children

__all__ = ["Host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What a runner needs of its agent."""

    node: NodeId
    host: str
    address: str
    port: int
    store: Store
    keys: Keys
    courier: Courier
    lease: Callable[[], Lease | None]
    post: Callable[[Callable[[], None]], None]
    """Run something on the owner's thread."""
    guard: Callable[[Callable[[], None]], None]
    """Run something of this job: a bug of ours there ends it here, and nothing else."""
    children: Children
    lookout: Lookout
    run_folder: Path
    """Of this job."""
    event_log: Path | None
    is_for_one_job: bool
    """The agent ends if this job cannot be served."""
