"""A port of the agent's HTTP server, before it is served.

The port stands in the node's record, so it is bound before the node registers. The server takes
longer to import than etcd takes to answer, so it starts afterwards; clients that connect meanwhile
wait.
"""

import errno
import socket
from typing import TYPE_CHECKING

from elasticd.errors import EnvironmentProblem
from elasticd.net.listener import address_of, family_of, listen
from elasticd.store.api import StoreSettings
from elasticd.store.real_user import reading_as_real_user

if TYPE_CHECKING:
    import ssl

__all__ = ["HttpListener"]


class HttpListener:
    """A port that listens from its creation to `close`; with TLS where etcd's clients have
    certificates.
    """

    def __init__(
        self,
        address: str,
        tls: StoreSettings | None = None,
        *,
        port: int = 0,
        flag: str = "--http-port",
    ) -> None:
        """Bind to a port of the address; 0: a free one. `flag` is what chose the port.

        Raises:
            EnvironmentProblem: the address is not one of this machine, the port is taken, or a
                certificate is bad.
        """
        try:
            self.context = _context(tls)
        except OSError as exc:
            raise EnvironmentProblem(
                f"The certificates for etcd cannot serve the agent's own HTTP server ({exc}): give "
                "PEM files with --etcd-cacert, --etcd-cert and --etcd-key, the last without a "
                "password."
            ) from exc
        try:
            self.socket: socket.socket = listen(address, port, family=family_of(address))
        except OSError as exc:
            why = exc.strerror or exc
            if exc.errno in (errno.EADDRINUSE, errno.EACCES):
                raise EnvironmentProblem(
                    f"Port {port} of {address} cannot be served ({why}): choose another {flag}."
                ) from exc
            raise EnvironmentProblem(
                f"No HTTP server can listen on {address} ({why}): give this machine's own address "
                "with --local-addr."
            ) from exc

    @property
    def port(self) -> int:
        return address_of(self.socket)[1]

    def close(self) -> None:
        """Stop listening; a running server closes its own connections."""
        self.socket.close()


def _context(tls: StoreSettings | None) -> "ssl.SSLContext | None":
    if tls is None or not (tls.ca_file and tls.cert_file and tls.key_file):
        return None
    import ssl

    with reading_as_real_user():
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(tls.cert_file, tls.key_file)
        return context
