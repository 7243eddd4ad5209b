"""A listening port. It is light: clients wait there until something serves it."""

import errno
import socket

__all__ = ["ANY_ADDRESS", "address_of", "family_of", "host_port", "listen"]

ANY_ADDRESS = "*"
"""All addresses of this machine, of IPv4 and of IPv6."""


def listen(
    host: str,
    port: int,
    *,
    backlog: int = 32,
    family: socket.AddressFamily = socket.AF_UNSPEC,
) -> socket.socket:
    """Bind and listen; port 0 takes a free one. A port is free again at once after its end.

    `host`: a name, an address, or `*` for all addresses; `0.0.0.0` means those of IPv4 alone.
    `family`: of the address, if `host` is a name that has several.

    Raises: OSError: the address is not one of this machine, or the port is taken.
    """
    if host == ANY_ADDRESS:
        return _listen_anywhere(port, backlog)
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


def family_of(host: str) -> socket.AddressFamily:
    """Return the family in which to listen at an address or a name; IPv4 if a name has both."""
    if ":" in host:
        return socket.AF_INET6
    try:
        found = {each[0] for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        found = set()  # What is wrong with the name is said when somebody listens there.
    return socket.AF_INET6 if found == {socket.AF_INET6} else socket.AF_INET


def address_of(listener: socket.socket) -> tuple[str, int]:
    """Return the address and the port of a listening socket."""
    host, port = listener.getsockname()[:2]
    return str(host), int(port)


def host_port(host: str, port: int) -> str:
    """Return HOST:PORT for a URL, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# --- private ----------------------------------------------------------------------------------


def _listen_anywhere(port: int, backlog: int) -> socket.socket:
    """Listen to both families by one socket; a kernel without IPv6 has IPv4 alone."""
    try:
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True
        )
    except (OSError, ValueError) as exc:
        if getattr(exc, "errno", None) in (errno.EADDRINUSE, errno.EACCES):
            raise
    return socket.create_server(("", port), backlog=backlog)
