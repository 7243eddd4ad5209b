"""A session for a script that calls `elasticd.run` under plain `python`: there is no agent, and the
world has one rank.

It has a process group too, so that DistributedDataParallel works unchanged.
"""

import os
from collections.abc import Callable

from elasticd.channel.worker import Enter, Finished, Formed
from elasticd.records.ids import Generation, NodeId, Rank
from elasticd.records.member import StoreAddress
from elasticd.train.introspection.time_spent import SecondsSpent
from elasticd.train.session.ports import AbortableGroup, ObservedState
from elasticd.train.session.step_session import DeviceMark

__all__ = ["SingleProcess"]

_HOST = "127.0.0.1"
"""An address that nothing connects to: the group of a single rank needs no other."""


class SingleProcess:
    """A session with one world that never changes; `Session` documents its methods."""

    def __init__(self) -> None:
        self.generation = 0
        self.has_returned = False
        self.on_commit: Callable[[int], None] | None = None
        self.spent = SecondsSpent()
        self._group: AbortableGroup | None = None

    @property
    def has_left_as_agreed(self) -> bool:
        return False

    @property
    def final_save(self) -> None:
        return None

    def check(self, step: int) -> None:
        pass

    def committed(self, position: tuple[int, int]) -> None:
        pass

    def synchronize(self, mark: DeviceMark | None = None) -> None:
        if self._group is not None:
            self._group.synchronize(lambda: True, mark)

    def sequence(self) -> int:
        return self._group.sequence() if self._group is not None else 0

    def pause(self, why: str | None) -> None:
        pass

    def delivered(self) -> None:
        pass

    def attach(self, observed: ObservedState, pid: int) -> None:
        pass

    def next_world(self) -> Enter | None:
        """Return the only world at the first call, and None afterwards."""
        if self.generation:
            return None
        self.generation = 1
        return Enter(
            generation=Generation(1),
            rank=Rank(0),
            size=1,
            local_rank=0,
            local_size=1,
            node_rank=0,
            nodes=1,
            node=os.uname().nodename,
            store=StoreAddress(host=_HOST, port=0),
            reason="start",
        )

    def use(self, group: AbortableGroup | None) -> None:
        self._group = group

    def call(self, function: Callable[[], object]) -> None:
        function()

    def is_stale(self, generation: int) -> bool:
        return False

    def has_newer(self, generation: int) -> bool:
        return False

    def wait_newer(self, generation: int, timeout_s: float) -> bool:
        return False

    def formed(self, formed: Formed, note: str = "") -> None:
        pass

    def broken(self, why: str, unreachable: tuple[NodeId, ...] = ()) -> None:
        pass

    def finished(self, finished: Finished) -> None:
        pass

    def close(self) -> None:
        pass
