"""How long each step of this rank waited in collectives, which distinguishes a late rank from the
others.

Step times find no late rank, since a collective makes them equal on all ranks. What differs is the
wait: the last rank waits only for the transfer, every other one for the last rank too. So the time
of a step that this rank spends blocked in collectives is summed up, from two places that see all of
it:

* A collective that Python waits for (`all_reduce`, FSDP2's gathers, a barrier): from the call of
  `wait` to its return. In a loop of them the first one has the wait, the later ones do not, so it
  must be the sum.
* DistributedDataParallel waits in C++, for the futures of its buckets, at the end of the backward
  pass: from the moment when it takes the last future to the moment when the optimizer may step, or
  when the next collective outside of a backward pass begins.

Rejected: the time from a collective's start to its end. Of DDP's early buckets that is mostly this
rank's own backward pass, which is longer on the late rank and hides what is looked for.

Not seen: what waits on a GPU (NCCL's host calls return before the device has come to them), `send`
and `recv`, backward passes that are not the last of their step where each one reduces gradients,
and ranks that meet in no collective. A step without any has a wait of zero.
"""

import time
from collections import deque
from itertools import pairwise
from statistics import median

import torch

from elasticd.channel.worker import Waits

__all__ = ["WINDOW_STEPS", "StepWait", "step_wait"]

WINDOW_STEPS = 50
"""The number of steps whose median counts: one that saved, compiled or was interrupted does not
move it."""

_graph_task = torch._C._current_graph_task_id
_now_s = time.monotonic


class StepWait:
    """The waits of this process. The training thread writes them, the heartbeat thread reads them.

    A session's commit ends a step in place, without a call.
    """

    __slots__ = ("blocked_s", "ends", "taken_s", "total_s")

    def __init__(self) -> None:
        self.taken_s = 0.0
        """When the newest future was taken that C++ waits for; 0: nothing waits."""
        self.blocked_s = 0.0
        """The waits of this process so far, added up."""
        self.total_s = 0.0
        """The same of its committed steps alone."""
        self.ends: deque[tuple[float, float]] = deque(maxlen=WINDOW_STEPS + 1)
        """What `blocked_s` was when each step was committed, and when that was."""

    def waited(self, began_s: float) -> None:
        """Count a wait in Python that began then and ends now."""
        self.blocked_s += _now_s() - began_s
        self.taken_s = 0.0

    def took_future(self) -> None:
        """Note that C++ will wait for a collective."""
        self.taken_s = _now_s()

    def begin_collective(self) -> None:
        """Count what C++ waited for since the last future, if the backward pass is over."""
        if self.taken_s and _graph_task() == -1:
            self.waited_for_future()

    def waited_for_future(self) -> None:
        """Count what C++ waited for: the optimizer may step now."""
        if self.taken_s:
            self.blocked_s += _now_s() - self.taken_s
            self.taken_s = 0.0

    def begin_generation(self) -> None:
        """Forget the steps of another world: its ranks were others."""
        self.ends.clear()
        self.blocked_s, self.taken_s = self.total_s, 0.0

    def summary(self) -> Waits:
        """Return the typical wait and duration of the last steps; any thread may call this.

        A duration needs two commits, so a generation's first step, which is like no other, does
        not count.
        """
        ends = list(self.ends)
        if len(ends) < 2:
            return Waits()
        waits_s = sorted(later[0] - former[0] for former, later in pairwise(ends))
        count = len(waits_s)
        return Waits(
            steps=count,
            step_s=median(later[1] - former[1] for former, later in pairwise(ends)),
            wait_s=median(waits_s),
            low_s=waits_s[count // 3],
            high_s=waits_s[count - 1 - count // 3],
        )


step_wait = StepWait()
