"""`/sd`: all agents of the cluster, for Prometheus' HTTP service discovery.

They are read from etcd at that moment. If etcd does not answer, the server answers 503: on an error
Prometheus keeps its targets, on an empty list it drops them all. An empty list is never true, since
this agent is there.
"""

import json
import re
from collections.abc import Callable
from http import HTTPStatus

from elasticd.errors import ElasticdError
from elasticd.net.listener import host_port
from elasticd.records.codec import decode
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.store.api import WatchSnapshot
from elasticd_agent.http_server.answer import HttpAnswer, text_answer

__all__ = ["Discovery"]

_JSON = "application/json"
_NOT_IN_LABEL = re.compile(r"[^a-zA-Z0-9_]")


class Discovery:
    """The route `/sd`. `listed` reads all keys under a prefix from etcd, and may wait."""

    def __init__(
        self, listed: Callable[[str], WatchSnapshot], cluster: str, *, is_tls: bool = False
    ) -> None:
        self._listed, self._cluster, self._is_tls = listed, cluster, is_tls

    def __call__(self, path: str, query: str) -> HttpAnswer | None:
        if path != "/sd":
            return None
        try:
            items = self._listed(Keys(self._cluster).nodes).items
        except ElasticdError as exc:
            return text_answer(
                HTTPStatus.SERVICE_UNAVAILABLE, f"etcd does not say who is there: {exc}"
            )
        nodes = []
        for item in items:
            try:
                nodes.append(decode(Node, item.value))
            except ElasticdError:
                continue  # Of a newer version: the others are there all the same.
        targets = [self._target(node) for node in nodes if node.http_port]
        if not targets:
            return text_answer(
                HTTPStatus.SERVICE_UNAVAILABLE, "etcd knows of no agent, not even this one."
            )
        body = json.dumps(targets, separators=(",", ":")).encode()
        return HttpAnswer(body=body, content_type=_JSON)

    def _target(self, node: Node) -> dict[str, object]:
        """Make one target group for each node, so that each has labels of its own before
        relabeling.
        """
        labels = {
            "__meta_elasticd_cluster": self._cluster,
            "__meta_elasticd_node": node.node,
            "__meta_elasticd_host": node.host,
            "__meta_elasticd_version": node.version,
        }
        for name, value in node.labels.items():
            labels[f"__meta_elasticd_label_{_NOT_IN_LABEL.sub('_', name)}"] = value
        if self._is_tls:
            labels["__scheme__"] = "https"
        return {"targets": [host_port(node.address, node.http_port)], "labels": labels}
