"""Says at the end of a script what was not saved, though the job was given `--checkpoint`.

Without `elasticd.run` only the script itself can save. A script that does not save would end well
and leave no checkpoint. This process knows whether it called `elasticd.checkpoint`; a process that
the script has started may have called it instead, which the keeper of rank 0's node knows. It also
knows which save has failed since the script asked last: without `wait` that is the script's last.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import closing, suppress

from elasticd.errors import ElasticdError

__all__ = ["needs_none", "remind"]

START_S = 2.0
"""The time in seconds that the end of a very short script may wait for a keeper that is just
starting."""
ANSWER_S = 1.0

_NEEDS_NONE = False


def needs_none() -> None:
    """Omit the warning at the end: something saves, or there was nothing left to train."""
    global _NEEDS_NONE
    _NEEDS_NONE = True


def remind(
    env: Mapping[str, str], write: Callable[[str], object] = lambda text: sys.stderr.write(text)
) -> None:
    """Write what has failed since the last save, and one sentence if nothing was saved.

    `env` is that of a rank that ended well.
    """
    keeper = env.get("ELASTICD_KEEPER", "")
    if not keeper or env.get("RANK") != "0":
        return
    # The import is here, because most processes that import this module never need it.
    from elasticd.keeper.client import Client
    from elasticd.keeper.wire import message as ms

    limit_s = ANSWER_S if _NEEDS_NONE else START_S
    with suppress(ElasticdError), closing(Client(keeper, limit_s=limit_s)) as client:
        standing = client.ask(ms.GetStatus(), ms.Status, timeout_s=ANSWER_S)
        for note in standing.notes:
            write(f"elasticd: {note}\n")
        if not _NEEDS_NONE and standing.durable_step < 0 and not standing.is_busy:
            write(
                "elasticd: nothing was saved, though --checkpoint was given: call "
                "elasticd.checkpoint.load() before the training and "
                "elasticd.checkpoint.save(state, step) in it, or let elasticd.run do both.\n"
            )
