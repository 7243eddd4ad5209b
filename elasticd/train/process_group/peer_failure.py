"""Tells a failure that another rank's end caused from an error of the script's own."""

import os
import re
import traceback
from collections.abc import Iterator

import torch

from elasticd.records.failure import ERROR_WORDS

__all__ = ["causes_of", "is_peer_unreachable", "is_secondary"]

_SILENCES = re.compile(r"timed out|no route|unreachable", re.IGNORECASE)
_SPEAKERS = re.compile(r"gloo|nccl|c10d|store|socket|process ?group|connect", re.IGNORECASE)
_PLACES = tuple(
    os.path.join(os.path.dirname(torch.__file__), *place)
    for place in (("distributed",), ("nn", "parallel"), ("autograd",))
)
"""Where Python calls what waits for other ranks; DistributedDataParallel does it in a backward."""


def is_secondary(exc: BaseException, *, is_peer_gone: bool) -> bool:
    """Return True if this exception, or one of its causes, looks like another rank's end.

    If a connection of the group has ended, any RuntimeError from torch's distributed parts, or that
    mentions them, looks so too, whatever its text. A KeyError or ValueError does not come from a
    collective, and neither does an error about shapes of matrices.
    """
    for cause in causes_of(exc):
        if not isinstance(cause, RuntimeError | OSError):
            continue
        words = str(cause)
        if ERROR_WORDS.search(words):
            return True
        if is_peer_gone and (_SPEAKERS.search(words) or _has_waited(cause)):
            return True
    return False


def is_peer_unreachable(exc: BaseException) -> bool:
    """Return True if a connection ended because its other end acknowledged nothing for too long."""
    return any(_SILENCES.search(str(cause)) for cause in causes_of(exc))


def _has_waited(exc: BaseException) -> bool:
    """Return True if the exception was raised below a call that may wait for other ranks."""
    frames = traceback.walk_tb(exc.__traceback__)
    return any(frame.f_code.co_filename.startswith(_PLACES) for frame, _ in frames)


def causes_of(exc: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and each that it was raised from or while handling, once."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [exc]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        todo += [one.__cause__, one.__context__]
