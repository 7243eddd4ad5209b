"""Which stores a pool is to keep open."""

from elasticd.channel.pool import KeepStores, ToPool
from elasticd.records.member import StoreAddress
from elasticd_agent.workers.fresh_stores import FreshStores


def test_store_of_the_world_before_stays_open() -> None:
    """Its ranks may still be there, and agree by it on the step after which they leave."""
    told: list[ToPool] = []
    stores = FreshStores("10.0.0.1", told.append)
    first, second, third = (StoreAddress(host="10.0.0.1", port=port) for port in (1, 2, 3))
    closed = []
    for store in (first, second, third):
        stores.use(store)
        (message,) = told[-1:]
        assert isinstance(message, KeepStores) and store in message.used
        closed.append(message.close)
    assert closed == [(), (), (first,)]


def test_store_of_a_world_that_never_began_here_closes_no_other() -> None:
    """Else the standing world, or the one before, would lose its own in the middle of a step."""
    told: list[ToPool] = []
    stores = FreshStores("10.0.0.1", told.append)
    before, standing, passed, stale = (StoreAddress(host="10.0.0.1", port=p) for p in (1, 2, 3, 4))
    for store in (before, standing):
        stores.use(store)
    for store in (passed, stale, standing):
        stores.give_up(store)
    closed = [
        store for message in told if isinstance(message, KeepStores) for store in message.close
    ]
    assert closed == [passed, stale]
    stores.request()
    (message,) = told[-1:]
    assert isinstance(message, KeepStores) and message.used == (before, standing)
