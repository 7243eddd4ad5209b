"""Keeps torch's stores from asking the name service who connects.

At each connection a client and a server of TCPStore look up the name that belongs to the address,
for logs that nobody reads. A lost packet of the name service then costs 5 s. In a server, which has
one thread, it costs all ranks 5 s: that was seen in about one connection of fifty. torch gives up
these lookups for the rest of a process when one of them fails, so one is made to fail: this
thread's resolver has no servers during one connection. There is no option for it.
"""

import ctypes
import socket
import threading
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist

__all__ = ["skip_reverse_lookups"]

_LIMIT_S = 1.0
_GREETING_BYTES = 10
_NONCE_BYTES = 4
"""The number that a client of TCPStore sends first, and the part of it with which the server
answers."""

_lock = threading.Lock()
_is_done = False


class _ResolverState(ctypes.Structure):
    """The begin of glibc's `struct __res_state`; each thread has one."""

    _fields_ = (
        ("retrans", ctypes.c_int),
        ("retry", ctypes.c_int),
        ("options", ctypes.c_ulong),
        ("servers", ctypes.c_int),
    )


def skip_reverse_lookups() -> None:
    """Switch the lookups off once in this process; processes that it forks later inherit that.

    With another C library nothing changes.
    """
    global _is_done
    with _lock:
        if _is_done:
            return
        _is_done = True
        with suppress(AttributeError, OSError, RuntimeError):
            library = ctypes.CDLL(None)
            library.__res_init()
            find = library.__res_state
            find.restype = ctypes.POINTER(_ResolverState)
            state = find().contents
            servers, state.servers = state.servers, 0
            try:
                _connect_once()
            finally:
                state.servers = servers


def _connect_once() -> None:
    """Make a client of TCPStore connect to something that answers it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_LIMIT_S)
        answering = threading.Thread(target=_answer, args=(listener,), name="elasticd-lookup")
        answering.start()
        try:
            dist.TCPStore(  # type: ignore[attr-defined]
                "127.0.0.1",
                listener.getsockname()[1],
                is_master=False,
                timeout=timedelta(seconds=_LIMIT_S),
                wait_for_workers=False,
            )
        finally:
            answering.join()


def _answer(listener: socket.socket) -> None:
    with suppress(OSError):
        visitor, _ = listener.accept()
        with visitor:
            visitor.settimeout(_LIMIT_S)
            greeting = b""
            while len(greeting) < _GREETING_BYTES and (part := visitor.recv(_GREETING_BYTES)):
                greeting += part
            visitor.sendall(greeting[-_NONCE_BYTES:])
            visitor.recv(1)
