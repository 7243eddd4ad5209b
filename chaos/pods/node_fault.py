"""Faults of one node of a cluster, and of what runs on it."""

import os
import secrets
import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from chaos.plan.fault import Kind
from chaos.pods.active_fault import ActiveFaults, at_most_every
from chaos.pods.agent_pod import evictable, twin_of
from chaos.pods.link import NodeLink
from chaos.pods.program import NodeImage, Program, containerd_of, kubelet_of
from chaos.process import send
from chaos.site import Blow, Deed

if TYPE_CHECKING:
    from chaos.pods.node import PodNode
    from chaos.pods.site import PodSite

__all__ = ["NodeFaults"]

TAINT = "cloud.google.com/impending-node-termination"
"""One of those by which the operator knows that a node goes."""
FAILED, SERVED = "Failed", "is already served by an agent"
"""How a pod ended, and why, whose node another agent has."""


class NodeFaults:
    def __init__(self, site: "PodSite", active: ActiveFaults) -> None:
        self._site, self._active = site, active

    def aim(self, kind: Kind, node: "PodNode", victim: str, other: "PodNode") -> Blow | None:
        """Return what to do to a node that serves; None: that is not possible at this moment."""
        cluster = self._site.cluster
        assert node.pod is not None
        pod, host = node.pod.name, node.pod.host_address
        match kind:
            case Kind.POD_DELETE:
                return _deadly(node, victim, partial(cluster.delete_pod, pod))
            case Kind.POD_FORCE_DELETE:
                return _deadly(node, victim, partial(cluster.delete_pod, pod, is_forced=True))
            case Kind.CONTAINER_KILL:
                return _deadly(node, victim, partial(os.kill, node.agent_pid, signal.SIGKILL))
            case Kind.IMAGE_AWAY:
                return self._without_image(node, victim)
            case Kind.AGENT_STOP:
                return self._freeze_agent(node)
            case Kind.NODE_CORDON | Kind.NODE_EVICT:
                return self._cordon(node.name, is_evicted=kind is Kind.NODE_EVICT)
            case Kind.NODE_TAINT:
                return self._active.blow(
                    f"taint of {node.name}",
                    partial(cluster.taint, node.name, TAINT),
                    partial(cluster.taint, node.name, TAINT, is_there=False),
                    node=node.name,
                )
            case Kind.NODE_OBJECT_DELETE:
                return self._delete_object(node.name)
            case Kind.NODE_TWIN:
                return self._twin(node.name, other.name)
            case Kind.KUBELET_STOP:
                return self._freeze("kubelet", kubelet_of(node.name, host), node.name)
            case Kind.CONTAINERD_STOP:
                return self._freeze("containerd", containerd_of(node.name, host), node.name)
            case Kind.NODE_CUT | Kind.NODE_MUTE | Kind.NODE_DEAF | Kind.NODE_PART:
                return self._cut(kind, node, other)
        raise NotImplementedError(kind)

    # --- what Kubernetes says of a node

    def _cordon(self, node: str, *, is_evicted: bool) -> Blow:
        cluster = self._site.cluster

        def strike() -> None:
            cluster.cordon(node)
            for pod in evictable(cluster.pods(), node) if is_evicted else ():
                cluster.evict(pod)

        undo = partial(cluster.cordon, node, is_cordoned=False)
        return self._active.blow(f"cordon of {node}", strike, undo, node=node)

    def _delete_object(self, node: str) -> Blow:
        cluster = self._site.cluster
        was: list[Mapping[str, Any]] = []

        def strike() -> None:
            was.append(cluster.take_node(node))

        def undo() -> None:
            for each in was:
                cluster.give_node(each)

        return self._active.blow(f"the object of {node}", strike, undo, node=node)

    # --- programs and links

    def _freeze(self, name: str, program: Program | None, node: str) -> Blow | None:
        if program is None:
            return None
        victim = f"{name} of {node} (pid {program.pid})"
        return self._active.blow(victim, program.stop, program.resume, node=node)

    def _freeze_agent(self, node: "PodNode") -> Blow:
        pid = node.agent_pid
        return self._active.blow(
            f"agent of {node.name} (pid {pid})",
            lambda: _none(send([pid], signal.SIGSTOP)),
            lambda: _none(send([pid], signal.SIGCONT)),
            node=node.name,
        )

    def _cut(self, kind: Kind, node: "PodNode", other: "PodNode") -> Blow | None:
        assert node.pod is not None
        kubelet = kubelet_of(node.name, node.pod.host_address)
        if kubelet is None or other.pod is None:
            return None
        is_part = kind is Kind.NODE_PART
        link = NodeLink(
            kubelet_pid=kubelet.pid,
            is_mute=kind is not Kind.NODE_DEAF,
            is_deaf=kind is not Kind.NODE_MUTE,
            other=other.pod.address if is_part else "",
        )
        return self._active.blow(
            f"network of {node.name}",
            link.cut,
            link.mend,
            node=node.name,
            other_node=other.name if is_part else "",
        )

    # --- pods

    def _without_image(self, node: "PodNode", victim: str) -> Blow | None:
        assert node.pod is not None
        containerd = containerd_of(node.name, node.pod.host_address)
        if containerd is None:
            return None
        images = NodeImage(containerd.pid, node.pod.image)
        name = f"image of {node.name}"
        kept = self._active.blow(name, images.hide, images.give_back)
        assert kept.undo is not None
        give_back: Deed = kept.undo
        deleted = partial(self._site.cluster.delete_pod, node.pod.name, is_forced=True)

        def strike() -> None:
            kept.strike()
            deleted()

        def is_there_again() -> bool:
            give_back()
            return node.has_successor()

        return _deadly(node, f"{victim}, and the image", strike, is_undone=is_there_again)

    def _twin(self, node: str, where: str) -> Blow:
        """Start a second agent that says it is this node; it is to end by itself, refused."""
        cluster = self._site.cluster
        name = f"twin-of-{node}-{secrets.token_hex(2)}"
        body = twin_of(cluster.agents_set(), name, node=node, where=where)
        return self._active.blow(
            f"a second {node} on {where}",
            partial(cluster.create_pod, body),
            partial(cluster.delete_pod, name, is_forced=True),
            node=node,
            is_undone=at_most_every(
                0.5, lambda: cluster.pod_phase(name) == FAILED and SERVED in cluster.logs(name)
            ),
        )


def _deadly(
    node: "PodNode", victim: str, strike: Deed, *, is_undone: Callable[[], bool] | None = None
) -> Blow:
    def end() -> None:
        node.is_ending = True
        strike()

    return Blow(
        victim=victim,
        strike=end,
        undo=node.start,
        is_undone=is_undone or node.has_successor,
        is_restart=True,
        node=node.name,
    )


def _none(result: object) -> None:
    """Drop a result, where only the deed counts."""
