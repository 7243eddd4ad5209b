"""The way into the agent: open etcd, serve, close."""

from elasticd.store.etcd import EtcdStore
from elasticd.telemetry.log import bind
from elasticd_agent.agent import Agent
from elasticd_agent.orphans import adopt_orphans
from elasticd_agent.settings import AgentSettings

__all__ = ["run"]


def run(settings: AgentSettings) -> int:
    """Serve as this node's agent until it is told to end; returns its exit code.

    Raises:
        ElasticdError: it cannot begin; the message says why and what to do.
    """
    bind(node=settings.node)
    adopt_orphans()
    store = EtcdStore(settings.store)
    try:
        Agent(settings, store).run()
    finally:
        store.close()
    return 0
