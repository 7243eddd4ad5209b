"""The faults that a namespaced Role allows, and that nobody has to undo from outside. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["CONSEQUENCES", "LOST", "TRAITS", "Kind", "Traits"]

LOST = "the answer was lost, so it may not have been done"
"""The begin of a fault's note if nobody can tell whether the fault was done."""


class Kind(StrEnum):
    """What is done; `chaos.plan.fault` has the same words for the same deeds."""

    POD_DELETE = "pod-delete"
    POD_FORCE_DELETE = "pod-force-delete"
    POD_EVICT = "pod-evict"
    WORKER_KILL = "worker-kill"
    WORKER_STOP = "worker-stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What is right after a fault of one kind."""

    about: str
    is_of_worker: bool = False
    """A process of the pod is struck, and the pod itself stays."""
    may_pass: bool = False
    """It may be over before anybody has to do something: then nothing changes."""
    reasons: frozenset[str]
    """What `status.lossesByReason` may count for it."""


_GOODBYE = frozenset({"node_left", "preempted"})
_GONE = frozenset({"node_dead", "node_lost", "node_returned"})

TRAITS: Mapping[Kind, Traits] = {
    Kind.POD_DELETE: Traits(
        about="the agent's pod is deleted with its grace period", reasons=_GOODBYE
    ),
    # The kubelet sends SIGTERM even so, and the agent may get to say goodbye.
    Kind.POD_FORCE_DELETE: Traits(
        about="the agent's pod is deleted without a grace period", reasons=_GONE | _GOODBYE
    ),
    Kind.POD_EVICT: Traits(about="the agent's pod is evicted", reasons=_GOODBYE),
    Kind.WORKER_KILL: Traits(
        about="one worker gets SIGKILL", is_of_worker=True, reasons=frozenset({"worker_killed"})
    ),
    Kind.WORKER_STOP: Traits(
        about="one worker is stopped, and continued after a few seconds",
        is_of_worker=True,
        may_pass=True,
        reasons=frozenset({"worker_hung"}),
    ),
}

CONSEQUENCES = frozenset({"collective_broken"})
"""Changes that blame nobody: all others feel a death at once, and who died is told later."""
