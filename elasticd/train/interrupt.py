"""How `train` is left when the world changes, and which functions are never left in the middle.

A function that is marked is a region without interrupts: the handler of the signal looks at the
frames on the stack, and raises nothing while one of them is marked. So nothing has to be entered or
left, no exception can leave the region open wherever it is raised, and a step pays nothing. The
agent's order to leave comes to session/agent_session.py.

Rejected: a counter that a `with` statement raises and lowers. An exception of somebody else
(Ctrl-C, PyThreadState_SetAsyncExc) between the call and the `try` would leave it raised for ever,
and the rank could never be interrupted again.
"""

import os
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

__all__ = ["Interrupted", "may_be_left", "uninterruptible"]

F = TypeVar("F", bound=Callable[..., Any])

_SWITCHES = frozenset({"__enter__", "__exit__"})
_TORCH = f"{os.sep}torch{os.sep}"

_marked: set[tuple[str, int]] = set()


class Interrupted(BaseException):
    """The generation is over: leave `train`, it is called again in the next one.

    Not an Exception, so that an `except RuntimeError` or `except Exception` around a step (out of
    memory, a bad batch) does not swallow it.
    """


def uninterruptible(function: F) -> F:
    """Mark a plain function or generator function: no signal interrupts it, nor what it calls.

    It may raise `Interrupted` itself, where it knows that it can be left. Other decorators stand
    above this one. Between two `next` of a generator its frame is not on the stack, so the body of
    a loop over it can be interrupted.
    """
    _marked.add(_place_of(function.__code__))
    return function


def may_be_left(frame: FrameType | None) -> bool:
    """Return True unless this frame or one that waits for it is of a function that is marked.

    Or of one with which torch switches a mode of the whole thread on or off (autocast): that would
    stay as it is, and nothing puts it back.
    """
    while frame is not None:
        if _place_of(frame.f_code) in _marked or _is_switch(frame.f_code):
            return False
        frame = frame.f_back
    return True


def _is_switch(code: CodeType) -> bool:
    return code.co_name in _SWITCHES and _TORCH in code.co_filename


def _place_of(code: CodeType) -> tuple[str, int]:
    """Return where a function is defined: what torch.compile runs instead says the same."""
    return code.co_filename, code.co_firstlineno
