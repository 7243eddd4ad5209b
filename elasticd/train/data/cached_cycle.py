"""`itertools.cycle` around a Loader is refused: from its second pass on it shows kept batches.

Nobody knows which of them were shown, so after a failure the first pass would be the rest of the
epoch, or nothing, and the passes after it that rest again.

Whether an iterator is held by a cycle is known by a look at all objects of the process, which takes
as long as a collection: seconds where a dataset is millions of them. So it is asked only where the
function that began the pass names `cycle`, or a global variable that is it. A cycle that is handed
over as an argument, or around a generator, is not seen.
"""

import gc
import itertools
from types import FrameType

from elasticd.errors import CallError

__all__ = ["check_cycle", "may_cycle"]


def may_cycle(frame: FrameType) -> bool:
    """Say whether the function of this frame, which asks a Loader for a pass, can be for a cycle.

    The cycle itself is no function of Python's, so whoever calls it is the one who asks.
    """
    names = frame.f_code.co_names
    # Not its local variables: before Python 3.13 who reads them keeps them, the last batch and its
    # graph among them, until the function returns.
    return "cycle" in names or any(frame.f_globals.get(n) is itertools.cycle for n in names)


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
