"""How long workers run on after the life of their agent is over.

Only time in which they run counts. A worker that a signal has stopped (state T) does nothing, and
where the guardian of its pool is stopped too, as in a virtual machine that stands still, nobody is
there to end it. So time counts as stopped only if every worker that is there was seen stopped both
at its beginning and at its end; all that was not seen so counts as running.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from chaos.history.records import Outlived
from chaos.process import is_stopped
from chaos.site import Node

__all__ = ["EndedLives"]


@dataclass(slots=True, kw_only=True)
class EndedLife:
    """The life of an agent that is over while workers of it may be there."""

    node: Node
    life: int
    since_s: float
    looked_s: float
    stopped_s: float = 0.0
    stopped_pids: frozenset[int] = frozenset()
    """The workers that were stopped at the last look."""

    def look(self, pids: tuple[int, ...], stopped_pids: frozenset[int], now_s: float) -> None:
        """Take in which workers are there, and which of them are stopped."""
        if pids and self.stopped_pids.issuperset(pids) and stopped_pids.issuperset(pids):
            self.stopped_s += now_s - self.looked_s
        self.looked_s, self.stopped_pids = now_s, stopped_pids

    def outlived(self, pids: tuple[int, ...], now_s: float) -> Outlived:
        """Return the record of it; `pids` are the workers that are still there."""
        return Outlived(
            at_s=now_s,
            node=self.node.name,
            life=self.life,
            after_s=now_s - self.since_s,
            pids=pids,
            stopped_s=self.stopped_s,
        )


class EndedLives:
    """All lives of agents that are over; each has its record once its workers are gone."""

    def __init__(self, is_stopped: Callable[[int], bool] = is_stopped) -> None:
        self._is_stopped = is_stopped
        self._seen: set[tuple[str, int]] = set()
        self._dying: list[EndedLife] = []

    def begin(self, nodes: Iterable[Node], now_s: float) -> list[Node]:
        """Take note of lives that are over since the last call, and return their nodes."""
        found = []
        for node in nodes:
            key = (node.name, node.life)
            if node.life and node.exit_code is not None and key not in self._seen:
                self._seen.add(key)
                self._dying.append(
                    EndedLife(node=node, life=node.life, since_s=now_s, looked_s=now_s)
                )
                found.append(node)
        return found

    def look(self, now_s: float, *, is_last: bool = False) -> list[Outlived]:
        """Look at the workers of ended lives; return the records of those that have none left.

        With `is_last` every life gets its record, and names the workers that are still there.
        """
        found, left = [], []
        for ended in self._dying:
            pids = ended.node.workers_of(ended.life)
            ended.look(pids, frozenset(filter(self._is_stopped, pids)), now_s)
            if pids and not is_last:
                left.append(ended)
            else:
                found.append(ended.outlived(pids, now_s))
        self._dying = left
        return found
