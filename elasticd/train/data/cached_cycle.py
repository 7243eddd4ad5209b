"""`itertools.cycle` around a Loader is refused: from its second pass on it shows kept batches.

Nobody knows which of them were shown, so after a failure the first pass would be the rest of the
epoch, or nothing, and the passes after it that rest again.
"""

import gc
import itertools

from elasticd.errors import CallError

__all__ = ["check_cycle"]


def check_cycle(iterator: object) -> None:
    """Look whether a cycle holds this iterator, which has come to its end.

    Raises:
        CallError: one does.
    """
    if any(isinstance(each, itertools.cycle) for each in gc.get_referrers(iterator)):
        raise CallError(
            "itertools.cycle keeps the batches of its first pass over a Loader and shows those "
            "again, so that after a failure it would show only what was left of the epoch, or "
            "nothing: begin a new pass instead, with a generator of `while True: yield from "
            "state.data`."
        )
