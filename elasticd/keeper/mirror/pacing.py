"""How long a sender waits before each block, so that a node sends no more than it may. Pure.

After each block the sender pauses for the time that the block takes at the allowed bandwidth, less
the time that the sending took. Time in which nothing was sent is not saved up for later: the
training of another job would meet that burst. So a node sends in any second at most the bandwidth
and one block more. The shares of all ranks of a node go through one `SendPacing`. Rejected: the
kernel's own pacing (SO_MAX_PACING_RATE), which needs a queueing discipline that not every host has,
and says nothing of several connections.
"""

__all__ = ["SendPacing"]


class SendPacing:
    """The pace of one sender; one thread uses it."""

    def __init__(self, bytes_per_s: float = 0.0) -> None:
        """`bytes_per_s` is the most that is sent in a second; 0: no limit."""
        self.bytes_per_s = bytes_per_s
        self._free_s = float("-inf")
        """When the next block may leave."""

    def pause_s(self, nbytes: int, now_s: float) -> float:
        """Return how long to wait before a block of so many bytes, which then counts as sent."""
        if not self.bytes_per_s:
            return 0.0
        begin_s = max(now_s, self._free_s)
        self._free_s = begin_s + nbytes / self.bytes_per_s
        return begin_s - now_s
