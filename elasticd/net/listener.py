"""A listening port. It is light: clients wait there until something serves it."""

import socket

__all__ = ["address_of", "listen"]


def listen(
    host: str,
    port: int,
    *,
    backlog: int = 32,
    family: socket.AddressFamily = socket.AF_UNSPEC,
) -> socket.socket:
    """Bind and listen; port 0 takes a free one. A port is free again at once after its end.

    `family`: of the address, if `host` is a name that has several.

    Raises: OSError: the address is not one of this machine, or the port is taken.
    """
    found = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    of, _, _, _, where = found[0]
    opened = socket.socket(of, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(where)
        opened.listen(backlog)
    except BaseException:
        opened.close()
        raise
    return opened


def address_of(listener: socket.socket) -> tuple[str, int]:
    """Return the address and the port of a listening socket."""
    host, port = listener.getsockname()[:2]
    return str(host), int(port)
