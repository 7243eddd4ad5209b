"""Asks one node's agent for its part of a bundle.

An agent that does not answer is not asked again, so a person waits at most one time-out for each
node, for any number of requests.
"""

import json
from contextlib import suppress
from urllib.parse import quote

from elasticd.bundle.job_files import JobFile
from elasticd.control.logs.output import HttpFetch
from elasticd.records.codec import from_plain
from elasticd.records.ids import JobName
from elasticd.records.member import Node
from elasticd.store.api import StoreSettings

__all__ = ["AgentClient"]

TIMEOUT_S = 4.0
ANSWER_LIMIT_BYTES = 8 << 20
"""The size limit of one answer in bytes: an agent sends less, so a larger answer is invalid."""


class AgentClient:
    """The client for one job on one node; one thread uses it."""

    def __init__(self, node: Node, job: JobName, settings: StoreSettings | None) -> None:
        self._node, self._job = node, job
        self._fetch = HttpFetch(settings, TIMEOUT_S)
        self.is_silent = False
        """True if the agent did not answer; then it is not asked again."""

    def list(self) -> list[JobFile] | None:
        """Return the job's files on the node; None if the agent does not give their list."""
        body = self._get(f"/v1/bundle/jobs/{self._job}")
        if not body:
            return None
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            found: tuple[JobFile, ...] = from_plain(tuple[JobFile, ...], json.loads(body))
            return list(found)
        return None

    def end(self, name: str, limit_bytes: int) -> bytes | None:
        """Return the end of one file; None if the file is gone, or the agent does not answer."""
        return self._get(f"/v1/bundle/jobs/{self._job}/{quote(name)}?bytes={limit_bytes}")

    def log(self) -> bytes | None:
        """Return the newest lines of the agent's own log; None if the agent does not give them."""
        return self._get("/v1/bundle/agent.log")

    def versions(self) -> bytes | None:
        """Return the versions installed on the node, as JSON; None if the agent does not answer."""
        return self._get("/v1/bundle/versions")

    def metrics(self) -> bytes | None:
        """Return the agent's metrics in Prometheus' text format; None if it does not give them."""
        return self._get("/metrics")

    def close(self) -> None:
        self._fetch.close()

    def _get(self, path: str) -> bytes | None:
        if self.is_silent:
            return None
        body = self._fetch.answer(self._node, path, ANSWER_LIMIT_BYTES)
        if body is None:
            self.is_silent = True
            return None
        return body[1] if body[0] == 200 else None
