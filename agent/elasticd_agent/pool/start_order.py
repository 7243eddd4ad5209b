"""How the order for a worker is sent to the process that becomes the worker, and is read there.

The message is one byte, which says what is ordered, and descriptors: a file in memory with the
order itself, the end of a pipe on which the worker reports, and others that this kind of order
needs. The sender decides what lets the worker run afterwards: a zygote's worker waits for a byte of
a pipe of its own, a parked worker for a byte of its connection.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from elasticd.channel.pool import Start, unpack_to_pool
from elasticd.channel.wire import pack

__all__ = ["read_order", "send_order"]


@contextmanager
def send_order(control_fd: int, word: bytes, start: Start, *more_fds: int) -> Iterator[int]:
    """Send an order, with these further descriptors, and yield where the worker's report is read.

    The caller owns that descriptor once the block has ended well; if the block raises, it is
    closed.

    Raises: OSError: the order cannot be sent.
    """
    with ExitStack() as ours, ExitStack() as theirs:
        read_fd, write_fd = os.pipe()
        ours.callback(os.close, read_fd)
        theirs.callback(os.close, write_fd)
        order_fd = os.memfd_create("start")
        theirs.callback(os.close, order_fd)
        os.write(order_fd, pack(start))
        with socket.socket(fileno=os.dup(control_fd)) as control:
            socket.send_fds(control, [word], [order_fd, write_fd, *more_fds])
        yield read_fd
        ours.pop_all()


def read_order(order_fd: int) -> Start:
    """Read the order in the process that becomes the worker, wherever the offset of the file is."""
    start = unpack_to_pool(os.pread(order_fd, os.fstat(order_fd).st_size, 0))
    assert isinstance(start, Start)
    return start
