"""An order reaches the process that becomes the worker whole, and leaves the pool nothing open."""

import os
import socket

import pytest

from elasticd.channel.pool import Start
from elasticd.records.job import EntryKind
from elasticd_agent.pool.start_order import read_order, send_order
from elasticd_agent.pool.zygote import zygote_supervisor

START = Start(
    worker="w",
    entry_kind=EntryKind.SCRIPT,
    entry="s.py",
    args=("--name", "x" * 100_000),
    cwd="/",
    env={"A": "b"},
    out_path="/dev/null",
    err_path="/dev/null",
    error_file="",
)


def test_order_arrives_whole_with_where_to_report_and_what_was_added() -> None:
    ours, theirs = socket.socketpair()
    more_fd, kept_fd = os.pipe()
    with ours, theirs:
        with send_order(ours.fileno(), b"x", START, more_fd) as read_fd:
            word, fds, _, _ = socket.recv_fds(theirs, 10, 10)
            order_fd, report_fd, added_fd = fds
            assert (word, read_order(order_fd)) == (b"x", START)
            assert read_order(order_fd) == START
        os.write(report_fd, b"report")
        os.close(report_fd)
        assert os.read(read_fd, 10) == b"report"
        assert os.read(read_fd, 10) == b"", "the pool has kept the worker's end open"
        assert os.path.sameopenfile(added_fd, more_fd)
    for fd in (read_fd, order_fd, added_fd, more_fd, kept_fd):
        os.close(fd)


def test_worker_whose_order_is_given_up_has_nobody_to_report_to() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with pytest.raises(TimeoutError), send_order(ours.fileno(), b"x", START):
            raise TimeoutError
        _, (order_fd, report_fd), _, _ = socket.recv_fds(theirs, 10, 10)
    with pytest.raises(BrokenPipeError):
        os.write(report_fd, b"report")
    os.close(order_fd)
    os.close(report_fd)


def test_zygote_that_answers_nonsense_lets_no_worker_run() -> None:
    """The worker finds the end of the pipe that would have let it go, and nobody to report to."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"what?\n")
        with pytest.raises(ValueError, match="what"):
            zygote_supervisor._ask(ours.fileno(), START, 60.0)
        _, (order_fd, report_fd, go_fd), _, _ = socket.recv_fds(theirs, 10, 10)
    assert os.read(go_fd, 1) == b""
    with pytest.raises(BrokenPipeError):
        os.write(report_fd, b"report")
    for fd in (order_fd, report_fd, go_fd):
        os.close(fd)
