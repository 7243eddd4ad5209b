"""The name of the node on which a pod runs, as Kubernetes' downward API hands it over.

A pod's host name is the pod's own and changes with each; an agent that took it for its node would
come back as another node after every restart.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from elasticd.records.ids import NodeId, checked_name
from elasticd.records.node_name import node_id_of
from elasticd.telemetry.log import get_logger

__all__ = ["NodeName", "node_name"]

OURS, USUAL = "ELASTICD_NODE_NAME", "NODE_NAME"
IN_A_POD = "KUBERNETES_SERVICE_HOST"
"""Kubernetes sets it in every container. Elsewhere NODE_NAME may mean anything (a CI's worker)."""

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeName:
    """The node's name, as the environment gives it."""

    variable: str
    value: str

    @property
    def node(self) -> NodeId:
        """The id by which etcd knows this node.

        Raises:
            CallError: the name has characters that no name of a node in Kubernetes has.
        """
        return NodeId(checked_name(self.variable, node_id_of(self.value)))

    def explain(self) -> None:
        """Log that the id is not the name, if they differ."""
        if self.node != self.value:
            log.info(
                "node.name_shortened",
                name=self.value,
                node=self.node,
                hint="an id has at most 63 characters; its end is a hash of the whole name",
            )


def node_name(environ: Mapping[str, str]) -> NodeName | None:
    """Read the node's name; None: the environment has none that is meant for us."""
    for variable in (OURS, USUAL):
        value = environ.get(variable, "")
        if value and (variable == OURS or IN_A_POD in environ):
            return NodeName(variable=variable, value=value)
    return None
