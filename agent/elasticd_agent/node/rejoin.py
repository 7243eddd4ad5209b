"""The jobs that this node has left and comes back to, and when.

A node that joins a job again and again, for whatever reason, pauses between the joins and logs
this.

A node that was left out waits for a while. A node that was left out because others could not reach
it comes back only once it can reach all members of that time: each failed try would cost them a
formation.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Thread

from elasticd.errors import ElasticdError, NotSupported
from elasticd.net.reachability import unreachable
from elasticd.records.codec import decode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.keys import Keys
from elasticd.records.member import Member, peer_of
from elasticd.store.api import KeyValue, Store
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.clock import now_s

__all__ = ["Rejoins"]

PROBE_RETRY_S = 5.0
"""Between two looks whether those who could not reach us can be reached."""
JOINS_AT_ONCE = 10
JOINS_SPAN_S = 10.0
"""More joins of one job than that within so long, and the next one waits until there are fewer:
ten times what any fault asks for."""

log = get_logger()


@dataclass(slots=True, kw_only=True, eq=False)
class _PendingRejoin:
    due_s: float
    has_to_reach: bool


class Rejoins:
    """All methods run on the owner's thread; `post` runs something there."""

    def __init__(
        self, post: Callable[[Callable[[], None]], None], store: Store, keys: Keys
    ) -> None:
        self._post, self._store, self._keys = post, store, keys
        self._waiting: dict[JobName, _PendingRejoin] = {}
        self._joins_s: dict[JobName, list[float]] = {}

    def __contains__(self, job: JobName) -> bool:
        return job in self._waiting

    @property
    def wake_s(self) -> float | None:
        """Return when `take_due` should be called next; None if no job waits."""
        return min((each.due_s for each in self._waiting.values()), default=None)

    def add(self, job: JobName, delay_s: float, *, has_to_reach: bool = False) -> None:
        """Come back after so long; `has_to_reach` the members, if that is why we were left out."""
        self._waiting[job] = _PendingRejoin(due_s=now_s() + delay_s, has_to_reach=has_to_reach)

    def may_join(self, job: JobName) -> bool:
        """Count one more join of this job; return False if it was joined too often for now."""
        at_s = now_s()
        recent = [t for t in self._joins_s.get(job, []) if at_s - t < JOINS_SPAN_S]
        if len(recent) >= JOINS_AT_ONCE:
            pause_s = recent[0] + JOINS_SPAN_S - at_s
            log.warning("job.join_paused", job=job, joins=len(recent), pause_seconds=pause_s)
            self.add(job, pause_s)
            return False
        self._joins_s[job] = [*recent, at_s]
        return True

    def drop(self, job: JobName) -> None:
        self._waiting.pop(job, None)
        self._joins_s.pop(job, None)

    def take_due(self) -> bool:
        """Remove the jobs whose wait is over; return True if there was one."""
        due = [(job, one) for job, one in self._waiting.items() if one.due_s <= now_s()]
        for job, one in due:
            if one.has_to_reach:
                self._probe_peers(job, one)
            else:
                del self._waiting[job]
        return any(job not in self._waiting for job, _ in due)

    def _probe_peers(self, job: JobName, one: _PendingRejoin) -> None:
        """Try to reach everybody, on a thread: the owner waits for no network."""
        one.due_s = now_s() + PROBE_RETRY_S

        def probe() -> None:
            try:
                items = self._store.list(self._keys.members(job)).items
                lost = unreachable(peer_of(member) for member in _readable(items))
            except ElasticdError as exc:
                log.warning("peers.not_read", job=job, why=str(exc))
                return
            self._post(partial(self._probed, job, one, lost))

        try:
            Thread(target=probe, name="doors", daemon=True).start()
        except RuntimeError as exc:  # No more threads: tried again when it is due.
            log.warning("peers.not_probed", job=job, why=str(exc))

    def _probed(self, job: JobName, one: _PendingRejoin, lost: tuple[NodeId, ...]) -> None:
        if self._waiting.get(job) is not one:
            return
        log.info("peers.probed", job=job, unreachable=lost)
        if not lost:
            self.add(job, 0.0)


def _readable(items: Iterable[KeyValue]) -> Iterator[Member]:
    """Leave out items that this version cannot read, as a runner of the job does."""
    for item in items:
        with suppress(NotSupported):
            yield decode(Member, item.value)
