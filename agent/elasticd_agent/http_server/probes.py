"""The liveness probe (`/healthz`) and the readiness probe (`/readyz`) of an agent.

`/healthz` is a matter of this process alone: 503 if the thread that owns its state has been at one
thing for over five seconds; forming a world takes none of its time. Its lease is let go after
thirty, so who restarts an agent for this should ask for longer than that: it ends its workers. A
write that etcd refuses is shown in a second line, and the answer is still ok: a supervisor that
restarted the agent for it would end its workers. `/readyz` is 503 until the node is registered,
while its lease in etcd is not surely alive, and while it waits for the state of a job that other
nodes have: who ends one node after the other would end the last one that has it.
"""

from collections.abc import Callable
from http import HTTPStatus

from elasticd.control.logs.output import TROUBLE
from elasticd_agent.http_server.answer import HttpAnswer, text_answer

__all__ = ["BUSY_LIMIT_S", "PATHS", "Probes"]

PATHS = frozenset({"/healthz", "/readyz"})
"""The two paths. They are answered at once under any load: a supervisor that gets no answer
restarts us."""

BUSY_LIMIT_S = 5.0
"""How long one turn of the owner's thread may take. A turn takes milliseconds, since nothing in it
waits. A stall is reported early; the supervisor decides how long it may last."""


class Probes:
    """The routes of both probes; any thread may ask.

    `busy_s`: for how long the owner's thread has been at one thing; `is_ready`: registered, with a
    lease that is surely alive; `why_not_ready`: what else the node waits for, empty if it can take
    part; `trouble`: a sentence for `/healthz`, empty if all is well.
    """

    def __init__(
        self,
        *,
        busy_s: Callable[[], float] = float,
        is_ready: Callable[[], bool] = lambda: True,
        why_not_ready: Callable[[], str] = str,
        trouble: Callable[[], str] = str,
    ) -> None:
        self._busy_s, self._is_ready, self._trouble = busy_s, is_ready, trouble
        self._why_not_ready = why_not_ready

    def __call__(self, path: str, query: str) -> HttpAnswer | None:
        if path == "/healthz":
            return self._health()
        return self._readiness() if path == "/readyz" else None

    def _health(self) -> HttpAnswer:
        busy_s = self._busy_s()
        if busy_s > BUSY_LIMIT_S:
            return text_answer(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"This agent has been at one thing for {busy_s:.0f} s: does a disk hang?",
            )
        trouble = self._trouble()
        return text_answer(HTTPStatus.OK, f"ok\n{TROUBLE}{trouble}" if trouble else "ok")

    def _readiness(self) -> HttpAnswer:
        if not self._is_ready():
            why = "This node holds no lease in etcd: it is not registered yet, or etcd is away."
        else:
            why = self._why_not_ready()
        if why:
            return text_answer(HTTPStatus.SERVICE_UNAVAILABLE, why)
        return text_answer(HTTPStatus.OK, "ok")
