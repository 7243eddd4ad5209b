"""The address at which a daemon serves its metrics and probes, read from a flag."""

import re

from elasticd.cli.parse_value import LAST_PORT
from elasticd.errors import CallError

__all__ = ["listen_address"]


def listen_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT; return the host and the port.

    Raises: CallError: the text has another form.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_port = re.fullmatch("[0-9]{1,5}", port) is not None and int(port) <= LAST_PORT
    if not (colon and host and is_port):
        raise CallError(
            f"--listen {text} is no address: write HOST:PORT, as in 127.0.0.1:9481 or [::1]:9481, "
            "or *:9481 for all addresses."
        )
    return host, int(port)
