"""Says at the end of a script that it saved nothing, though the job was given `--checkpoint`.

Without `elasticd.run` only the script itself can save, and a script that does not would end well
and leave nothing behind. This process knows whether it called `elasticd.checkpoint`; a process that
the script has started may have done it instead, and of that the keeper of rank 0's node knows.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import closing, suppress

from elasticd.errors import ElasticdError

__all__ = ["needs_none", "remind"]

START_S = 2.0
"""How long the end of a very short script may wait for a keeper that is just being started."""
ANSWER_S = 1.0

_NEEDS_NONE = False


def needs_none() -> None:
    """Say nothing at the end: something saves, or there was nothing left to train."""
    global _NEEDS_NONE
    _NEEDS_NONE = True


def remind(
    env: Mapping[str, str], write: Callable[[str], object] = lambda text: sys.stderr.write(text)
) -> None:
    """Write one sentence if nothing was saved; `env` is that of a rank that ended well."""
    keeper = env.get("ELASTICD_KEEPER", "")
    if _NEEDS_NONE or not keeper or env.get("RANK") != "0":
        return
    # Here, because most processes that import this module never ask.
    from elasticd.keeper.client import Client
    from elasticd.keeper.wire import message as ms

    with suppress(ElasticdError), closing(Client(keeper, limit_s=START_S)) as client:
        standing = client.ask(ms.Ask(), ms.Standing, timeout_s=ANSWER_S)
        if standing.durable_step < 0 and not standing.is_busy:
            write(
                "elasticd: nothing was saved, though --checkpoint was given: call "
                "elasticd.checkpoint.load() before the training and "
                "elasticd.checkpoint.save(state, step) in it, or let elasticd.run do both.\n"
            )
