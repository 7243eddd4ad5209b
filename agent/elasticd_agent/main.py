"""The way into the agent: open etcd, register, serve, close."""

from elasticd.store.etcd import EtcdStore
from elasticd.telemetry.log import bind, get_logger
from elasticd_agent.descriptors import raise_limit
from elasticd_agent.orphans import adopt_orphans
from elasticd_agent.presence import Presence
from elasticd_agent.settings import AgentSettings

__all__ = ["run"]

log = get_logger()


def run(settings: AgentSettings) -> int:
    """Serve as this node's agent until it is told to end; returns its exit code.

    Raises:
        ElasticdError: it cannot begin; the message says why and what to do.
    """
    bind(node=settings.node)
    raise_limit()
    adopt_orphans()
    store = EtcdStore(settings.store)
    try:
        presence = Presence(settings, store, store.request_times)
        try:
            presence.open()
            # Only now: what knows of jobs takes a third of the whole start to import.
            from elasticd_agent.agent import Agent

            Agent(presence).run()
        finally:
            presence.close()
    finally:
        store.close()
    log.info("agent.ended", node=settings.node)
    return 0
