"""The TCPStores that a pool keeps ready: each is one world's, and never another's."""

from collections.abc import Callable

from elasticd.channel.pool import KeepStores, ToPool
from elasticd.records.member import StoreAddress

__all__ = ["FRESH_STORES", "FreshStores"]

FRESH_STORES = 2
"""One for the next world, one for the world after a failure that comes before it is replaced."""
KEPT_STORES = 2
"""Of those that were used: this world's, and that of the world before."""


class FreshStores:
    """What is asked of the pool, through `tell`, and what it has."""

    def __init__(
        self, address: str, tell: Callable[[ToPool], None], *, are_ports: bool = False
    ) -> None:
        self.ready: tuple[StoreAddress, ...] = ()
        """As the pool last said."""
        self._address, self._tell, self._are_ports = address, tell, are_ports
        self._used: list[StoreAddress] = []

    def use(self, store: StoreAddress) -> None:
        """Take it for the world that begins, and close what is older than the world before.

        In that one workers may train on, up to a step which they agree on by its store.
        """
        if store not in self._used:
            self._used.append(store)
        self.keep()

    def keep(self) -> None:
        """Ask for as many as are wanted."""
        self._tell(
            KeepStores(
                count=FRESH_STORES,
                host=self._address,
                used=tuple(self._used[-KEPT_STORES:]),
                close=tuple(self._used[:-KEPT_STORES]),
                are_ports=self._are_ports,
            )
        )
        self._used = self._used[-KEPT_STORES:]

    def lose(self) -> None:
        """The pool ended, and all that it had with it."""
        self.ready = ()
        self._used.clear()
