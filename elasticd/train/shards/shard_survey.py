"""The ranks of a new generation find out whether they have a whole state together.

The ranks ask before they build anything: if they have a whole state, they keep their parts beside
the new model; if not, they free the old model first. All ranks exchange labels; of equal
inventories, as replicas have, only one is sent.
"""

import json
from collections.abc import Callable

from elasticd.train.shards.local_shards import Remnants
from elasticd.train.shards.shard_cover import (
    ShardCover,
    ShardInventory,
    StateLabel,
    shown,
    survivors,
)
from elasticd.train.tcp_store.exchange import ExchangeGroup, StoreExchange

__all__ = ["survey"]


def survey(
    group: ExchangeGroup, remnants: Remnants, is_stale: Callable[[], bool]
) -> ShardCover | None:
    """Return the newest state that is whole, the same on all ranks; None if there is none.

    Raises: Interrupted: the generation ended meanwhile.
    """
    talk = StoreExchange(group, "elasticd/survey", is_stale)
    own = remnants.named()
    words = talk.exchange("labels", json.dumps([[label, own[label].name] for label in own]))
    labels = [{StateLabel(*label): name for label, name in json.loads(word)} for word in words]
    if not any(labels):
        return None
    names = shown(labels)
    for each in own.values():
        if names[each.name] == group.rank:
            talk.send(f"inventory/{each.name}", each.text)
    if group.rank == 0:
        inventories = {
            name: ShardInventory.from_json(talk.receive(f"inventory/{name}")) for name in names
        }
        found = survivors(labels, inventories)
        talk.send("found", found.to_json() if found is not None else "none")
    text = talk.receive("found")
    return ShardCover.from_json(text) if text != "none" else None
