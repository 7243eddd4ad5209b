"""Which epoll instances of a process are taken for Gloo's: an abort ends their connections."""

import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import torch.distributed as dist

from elasticd.train.tcp_store.open_sockets import gloo_loops

HERE = "127.0.0.1"
LIMIT = timedelta(seconds=30)


@contextmanager
def served() -> Iterator[int]:
    """A server as Twisted's: Python's epoll with a pipe, one listener and a connection."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((HERE, 0)))
        visitor = stack.enter_context(socket.create_connection(listener.getsockname()))
        link = stack.enter_context(listener.accept()[0])
        ends = os.pipe()
        for end in ends:
            stack.callback(os.close, end)
        epoll = stack.enter_context(select.epoll())
        for each in (ends[0], listener.fileno(), link.fileno()):
            epoll.register(each, select.EPOLLIN)
        yield os.fstat(listener.fileno()).st_ino
        assert visitor.fileno() >= 0


def listeners() -> set[int]:
    return {loop.listener.inode for loop in gloo_loops(())}


def test_server_on_pythons_epoll_is_none_of_gloos() -> None:
    """Its connections would end with the first abort of a group."""
    before = listeners()
    with served() as inode:
        assert inode not in listeners()
        assert listeners() == before


def test_server_on_libuv_is_none_of_gloos() -> None:
    """A store of the script's own is one, as is what uvloop serves."""
    before = listeners()
    store = dist.TCPStore(  # type: ignore[attr-defined]
        HERE, 0, is_master=True, wait_for_workers=False, timeout=LIMIT
    )
    client = dist.TCPStore(HERE, store.port, timeout=LIMIT)  # type: ignore[attr-defined]
    client.set("key", "value")
    assert listeners() == before


def test_group_of_gloos_is_one_loop_beside_such_servers() -> None:
    """An abort must find each of them."""
    before = listeners()
    with served() as inode:
        group = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, LIMIT)  # type: ignore[attr-defined]
        found = listeners() - before
        assert len(found) == 1 and inode not in found
        del group
