"""Detects whether Prometheus was restarted since the last evaluation.

No evaluation sees a restart between two evaluations, but it leaves a gap in every series: right
after it averages are low, which has made other autoscalers reduce their targets. So Prometheus is
asked how long it has run. That time is compared with the time since its last answer, so that two
servers behind one address, which were started at different times, do not look like a restart. It is
measured by Prometheus' own clock, like the age of samples.
"""

import json
import time
from dataclasses import dataclass
from datetime import datetime
from threading import Thread

from elasticd.autoscale.prometheus.session import Call, HttpSession

__all__ = ["PATH", "Restart", "Restarted", "started_unix_s"]

PATH = "/api/v1/status/runtimeinfo"
"""The path of Prometheus for its start time. Other servers with its API may not have it, and count
as never restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """The start of a Prometheus, after which a number may be an average over too little time."""

    ago_s: float
    is_sure: bool
    """False if it is not known whether Prometheus answered before that start."""

    def is_gap(self, window_s: float) -> bool:
        """Return whether a number over the last `window_s` must not be used."""
        return self.is_sure or self.ago_s < window_s


class Restart:
    """Watches one address for restarts; one thread uses it."""

    def __init__(self) -> None:
        self._answered_s: float | None = None

    def seen(self, session: HttpSession, clock_s: float | None, limit_s: float) -> Restarted | None:
        """Return Prometheus' start, if it was, or may have been, after the last evaluation.

        Args:
            session: the session for the request.
            clock_s: Prometheus' time in this evaluation; None if it did not answer.
            limit_s: the longest wait in seconds.
        """
        if clock_s is None:
            return None
        now_s, before_s = time.monotonic(), self._answered_s
        self._answered_s = now_s
        body = _body(session, limit_s)
        began_s = started_unix_s(body) if body is not None else None
        if began_s is None:
            return None
        up_s = max(0.0, clock_s - began_s)
        if before_s is None:
            return Restarted(ago_s=up_s, is_sure=False)
        return Restarted(ago_s=up_s, is_sure=True) if up_s < now_s - before_s else None


def started_unix_s(body: bytes) -> float | None:
    """Return the time of Prometheus' start, by its own clock; None if the body lacks it."""
    try:
        text = json.loads(body)["data"]["startTime"]
        began = datetime.fromisoformat(text)
        return began.timestamp() if began.tzinfo is not None else None
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None


def _body(session: HttpSession, limit_s: float) -> bytes | None:
    """Send the request on a thread of its own, which is abandoned if the answer takes too long."""
    call = Call(time.monotonic() + limit_s)
    found: list[bytes | None] = []
    thread = Thread(target=lambda: found.append(session.get(PATH, call)), daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    thread.join(limit_s)
    call.abort()
    return found[0] if found else None
