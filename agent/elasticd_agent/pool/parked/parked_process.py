"""What runs in a parked worker until it gets the order of a worker, or ends.

A parked worker draws its random values after it has its order, by the same steps as every worker.
"""

import os
import signal
import socket
from collections.abc import Collection

from elasticd.channel.pool import Start
from elasticd.telemetry.process_title import set_title
from elasticd_agent.pool.parked.order import GO, ORDER, TAKEN
from elasticd_agent.pool.process.inheritance import drop_inherited
from elasticd_agent.pool.start_order import read_order

__all__ = ["wait_for_order"]

_ORDER_FDS = 2


def wait_for_order(
    control_fd: int, kept_fds: Collection[int], pool_pid: int
) -> tuple[Start, int, int]:
    """Wait, in a process that was just forked, until it is to be a worker; return the order, and
    the descriptors of the report and of the order.

    The process must be the pool's child. It ends if the order never comes. Once the order comes all
    signals are blocked, as they are after a fork until the worker has shed what it inherited.
    """
    try:
        drop_inherited({*kept_fds, control_fd}, pool_pid)
        set_title("elasticd: parked worker", "parked")
        os.write(control_fd, f"{os.getpid()}\n".encode())
        return _order(control_fd)
    except BaseException:  # Whatever it is, nobody has ordered a worker: nobody misses one.
        os._exit(1)


def _order(control_fd: int) -> tuple[Start, int, int]:
    with socket.socket(fileno=os.dup(control_fd)) as control:
        control.setblocking(True)
        word, fds, _, _ = socket.recv_fds(control, 1, _ORDER_FDS, socket.MSG_CMSG_CLOEXEC)
        if word != ORDER or len(fds) != _ORDER_FDS:
            os._exit(1)  # The pool has ended, or has given us up.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        order_fd, report_fd = fds
        start = read_order(order_fd)
        control.sendall(TAKEN)
        if control.recv(1) != GO:
            os._exit(1)
    return start, report_fd, order_fd
