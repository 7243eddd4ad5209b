"""Tells this node's keeper the address of the next node's keeper, which is to hold a second copy of
a share.

The first rank of each node asks its keeper where other keepers reach it, and writes this address
into the generation's store, which only the ranks read. The ranks of the node before pass the
address to their keeper. Nobody waits for an address: one that is missing is looked for at the next
commit, and again after each snapshot, since a restarted keeper has another address. Rejected: etcd,
which everybody can read who sees the job; the token opens the memory of a node.
"""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from elasticd.keeper.client import Client
from elasticd.keeper.wire import message as ms
from elasticd.records.codec import from_plain, to_plain
from elasticd.train.save.keeper_buffers import REPLY_LIMIT_S
from elasticd.train.save.share_plan import next_node

__all__ = ["NextKeeper"]

FIRST_PAUSE_S, LAST_PAUSE_S = 0.01, 5.0
"""The pause between two reads of an address that is not there yet."""


class NextKeeperStore(Protocol):
    """The methods of a generation's store that `NextKeeper` uses."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...


class NextKeeper:
    """This rank's exchange of the keepers' addresses, in one generation."""

    def __init__(
        self, store: NextKeeperStore, *, rank: int, generation: int, nodes: Sequence[int]
    ) -> None:
        self._store = store
        own = nodes[rank]
        after = next_node(own, nodes)
        is_host = nodes.index(own) == rank
        # Restart mode has one store for all generations, where torchrun's flags say so.
        self._own_key = f"elasticd/keeper/{generation}/{own}" if is_host else ""
        self._next_key = f"elasticd/keeper/{generation}/{after}" if after is not None else ""
        self._plan: object = None
        """The plans that the keeper had when it got the address."""
        self._sent = b""
        self._fetched_at = -1
        self._pause_s, self._fetch_due_s = FIRST_PAUSE_S, 0.0

    def sync(self, client: Client, plan: object, snapshots: int) -> None:
        """Exchange the addresses as far as nobody waits; cheap if nothing has changed.

        `plan` is another object after the keeper got other plans; `snapshots` counts the snapshots
        taken.

        Raises:
            Unavailable: the keeper is gone.
        """
        # The store of a generation that ends raises what it likes, and is of no more use.
        with suppress(RuntimeError, ValueError, TypeError, KeyError):
            if self._plan is not plan:
                self._publish(client)
                self._plan, self._sent, self._fetched_at = plan, b"", -1
            if self._next_key and self._fetched_at != snapshots and self._is_time():
                self._fetch(client, snapshots)

    def _is_time(self) -> bool:
        """Return whether to read the store now; the pauses grow while no address is there."""
        now_s = time.monotonic()
        if now_s < self._fetch_due_s:
            return False
        self._fetch_due_s, self._pause_s = (
            now_s + self._pause_s,
            min(LAST_PAUSE_S, 2 * self._pause_s),
        )
        return True

    def _publish(self, client: Client) -> None:
        if self._own_key:
            met = client.ask(ms.GetAddress(), ms.Address, timeout_s=REPLY_LIMIT_S)
            self._store.set(self._own_key, json.dumps(to_plain(met.door)))

    def _fetch(self, client: Client, snapshots: int) -> None:
        if not self._store.check([self._next_key]):
            return
        text = self._store.get(self._next_key)
        self._fetched_at = snapshots
        self._pause_s, self._fetch_due_s = FIRST_PAUSE_S, 0.0
        plain = json.loads(text)
        if text != self._sent and plain is not None:
            door = from_plain(ms.KeeperAddress, plain)
            client.send(ms.Mirror(door=door), timeout_s=REPLY_LIMIT_S)
            self._sent = text
