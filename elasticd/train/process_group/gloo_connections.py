"""Shows whether any connection of a group has ended, for the price of one system call.

It is asked before each optimizer step: a script that swallows the error of a broken backward pass
would otherwise step with half-reduced gradients, and the commit would look like any other. Where
one has ended, each group tells whether any result is missing (`WakeableGroup.has_all_results`).
"""

import select
from collections.abc import Sequence

from elasticd.train.tcp_store.open_sockets import OpenSocket, duplicate_of

__all__ = ["GlooConnections"]


class GlooConnections:
    """Keeps duplicates of Gloo's sockets: Gloo closes its own when they fail, unnoticed.

    So only `close` really ends a connection; `Group` shuts the connections down before.
    """

    def __init__(self, links: Sequence[OpenSocket]) -> None:
        self._poll = select.epoll()
        self._sockets = [one for link in links if (one := duplicate_of(link)) is not None]
        self._has_lost_one = len(self._sockets) < len(links)
        for one in self._sockets:
            self._poll.register(one, select.EPOLLRDHUP)

    def has_any(self) -> bool:
        """Return whether any connection failed or was ended by its peer; once True it stays so."""
        if not self._has_lost_one and not self._poll.closed:
            self._has_lost_one = bool(self._poll.poll(0, 1))
        return self._has_lost_one

    def close(self) -> None:
        self._poll.close()
        for one in self._sockets:
            one.close()
        self._sockets.clear()
