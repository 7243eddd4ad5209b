"""The way into the agent: open etcd, register, serve, close."""

from elasticd.store.etcd.store import EtcdStore
from elasticd.telemetry.log import bind, get_logger
from elasticd_agent.loop.open_file_limit import raise_limit
from elasticd_agent.node.presence import Presence
from elasticd_agent.pod.first_process import end_on_signals
from elasticd_agent.pod.keeper_wait import wait_for_keepers
from elasticd_agent.pod.memory import log_limit
from elasticd_agent.pod.orphans import Children, adopt_orphans
from elasticd_agent.pod.reaper import Reaper
from elasticd_agent.settings import AgentSettings

__all__ = ["run"]

log = get_logger()


def run(settings: AgentSettings) -> int:
    """Serve as this node's agent until it is told to end; returns its exit code.

    Raises:
        ElasticdError: the agent cannot begin; the message says why and what to do.
    """
    bind(node=settings.node)
    end_on_signals()
    raise_limit()
    adopt_orphans()
    log_limit()
    children = Children()
    store = EtcdStore(settings.store)
    try:
        presence = Presence(settings, store, store.request_times)
        try:
            presence.open()
            # Only now: what knows of jobs takes a third of the whole start to import.
            from elasticd_agent.agent import Agent

            with Reaper(children):
                Agent(presence, children).run()
        finally:
            presence.close()
    finally:
        store.close()
        # Last of all: the node is out of the world, and nobody waits for it any more.
        wait_for_keepers(children, settings.keeper_wait_s)
    log.info("agent.ended", node=settings.node)
    return 0
