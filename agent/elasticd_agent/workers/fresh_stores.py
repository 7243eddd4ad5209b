"""The TCPStores that a pool keeps ready: each is one world's, and never another's."""

from collections.abc import Callable, Sequence

from elasticd.channel.pool import KeepStores, ToPool
from elasticd.records.member import StoreAddress

__all__ = ["FRESH_STORES", "FreshStores"]

FRESH_STORES = 2
"""How many fresh stores a pool keeps: one for the next world, and one in case that fails before it
is replaced."""
KEPT_STORES = 2
"""How many used stores stay open: this world's, and that of the world before."""


class FreshStores:
    """Remember the stores that were asked of the pool, through `tell`, and those it has."""

    def __init__(
        self, address: str, tell: Callable[[ToPool], None], *, are_ports: bool = False
    ) -> None:
        self.ready: tuple[StoreAddress, ...] = ()
        """The fresh stores that the pool reported last."""
        self._address, self._tell, self._are_ports = address, tell, are_ports
        self._used: list[StoreAddress] = []

    def use(self, store: StoreAddress) -> None:
        """Use a store for the world that begins, and close those older than the world before.

        In the world before, workers may train on up to a step that they agree on through its store.
        """
        if store not in self._used:
            self._used.append(store)
        self.request()

    def give_up(self, store: StoreAddress) -> None:
        """Close a store of a world that is over and never began here; it takes no other's place."""
        if store not in self._used:
            self._request((store,))

    def request(self) -> None:
        """Ask the pool for as many stores as are wanted."""
        self._request(self._used[:-KEPT_STORES])

    def _request(self, closed: Sequence[StoreAddress]) -> None:
        self._used = [store for store in self._used if store not in closed]
        self._tell(
            KeepStores(
                count=FRESH_STORES,
                host=self._address,
                used=tuple(self._used),
                close=tuple(closed),
                are_ports=self._are_ports,
            )
        )

    def on_pool_exit(self) -> None:
        """Take note that the pool ended, and its stores with it."""
        self.ready = ()
        self._used.clear()
