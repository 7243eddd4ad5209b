"""The shares for which a worker claimed a buffer of this keeper, and that it has not handed over.

If the worker's process ended in between, the share never comes. The keeper writes that into the
storage, since rank 0 on another node waits for the share, and cannot tell it from one that is still
being uploaded (docs/adr/0039).
"""

from contextlib import suppress
from threading import Lock

from elasticd.checkpoint.commit.share_loss import ShareLoss, write_loss
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.errors import ElasticdError
from elasticd.keeper.memory.share_memory import ShareMemory
from elasticd.keeper.wire.message import Plan

__all__ = ["ClaimedShares"]

CLAIMS_LIMIT = 1024
"""How many claims are remembered: more than twice the workers of any node."""


class ClaimedShares:
    """The claims of a keeper's workers. Several threads may use it."""

    def __init__(self, bucket: Bucket, uid: str, share_memory: ShareMemory) -> None:
        self._bucket, self._uid, self._share_memory = bucket, uid, share_memory
        self._lock = Lock()
        self._claims: dict[tuple[Snapshot, int, int], Plan] = {}
        """The plan of each claim, by snapshot, share and holder, oldest first."""

    def claim(self, snapshot: Snapshot, plan: Plan) -> None:
        """Take note that a worker is to copy its share; it has handed it to no other keeper."""
        with self._lock:
            self._claims[snapshot, plan.share, plan.holder] = plan
            while len(self._claims) > CLAIMS_LIMIT:
                del self._claims[next(iter(self._claims))]

    def handed_over(self, snapshot: Snapshot, plan: Plan) -> None:
        """Take note that the share is complete in this keeper's memory."""
        with self._lock:
            self._claims.pop((snapshot, plan.share, plan.holder), None)

    def tell_lost(self, generation: int) -> None:
        """Write down what was lost with processes of generations before this one.

        They have ended on this node, since a process of `generation` asks. A share whose worker is
        still connected is left for the next call: the last message may wait in the connection.
        """
        with self._lock:
            claims = [each for each in self._claims.items() if each[0][0].generation < generation]
        for key, plan in claims:
            snapshot, share, holder = key
            if share not in self._share_memory.missing(snapshot, plan.shares):
                continue
            with self._lock:
                if self._claims.get(key) is not plan:
                    continue  # It was handed over after all, and then its worker left.
            loss = ShareLoss(
                snapshot=snapshot,
                share=share,
                holder=holder,
                uid=self._uid,
                is_only_copy=plan.is_only_copy,
            )
            with suppress(ElasticdError):  # The next call tries again.
                write_loss(self._bucket, loss)
                with self._lock:
                    self._claims.pop(key, None)
