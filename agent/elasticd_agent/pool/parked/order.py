"""How the pool hands an order to a parked worker: once, or not at all.

The pool sends the order, the process answers, and the pool lets the process run. A process that
stood still meanwhile finds the connection closed and ends, so it never runs beside the worker that
was forked in its place.
"""

import os
import select

from elasticd.channel.pool import Start
from elasticd_agent.pool.process.inheritance import inherited
from elasticd_agent.pool.process.process_table import look_up
from elasticd_agent.pool.start_order import send_order

__all__ = ["GO", "ORDER", "TAKEN", "hand_over", "has_same_inheritance", "is_waiting"]

ORDER = b"o"
TAKEN = b"t"
GO = b"g"
ANSWER_LIMIT_S = 0.1
"""How long the pool waits for an answer; a fork on a machine that is as busy takes longer."""


def is_waiting(pid: int) -> bool:
    """Return whether a process runs, with one thread."""
    found = look_up(pid)
    return found is not None and found.state not in "TtZX" and found.threads == 1


def has_same_inheritance(pid: int, source: int) -> bool:
    """Return whether a process has the properties that it would inherit if it were forked now."""
    try:
        return inherited(pid) == inherited(source)
    except OSError:
        return False  # One of both has ended.


def hand_over(control_fd: int, start: Start) -> int:
    """Give an order, and let the process run once it has it; return its report's descriptor.

    Raises: OSError: the process does not answer; it runs nothing without the pool's last message.
    """
    with send_order(control_fd, ORDER, start) as read_fd:
        poll = select.poll()
        poll.register(control_fd, select.POLLIN)
        if not poll.poll(1000 * ANSWER_LIMIT_S) or os.read(control_fd, 1) != TAKEN:
            raise TimeoutError("it does not answer")
        os.write(control_fd, GO)
    return read_fd
