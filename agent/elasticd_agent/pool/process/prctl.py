"""Linux's per-process switches that Python does not wrap."""

import ctypes
import os
import signal

from elasticd.errors import EnvironmentProblem

__all__ = ["adopt_orphans", "ask_for_signal_at_parents_end", "environment_area"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def ask_for_signal_at_parents_end(number: signal.Signals) -> None:
    """Have the kernel send us this signal when the *thread* that started us ends.

    Children do not inherit this setting. Check getppid() afterwards: the parent may be gone
    already.
    """
    _call(_PR_SET_PDEATHSIG, int(number))


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, whatever its session."""
    _call(_PR_SET_CHILD_SUBREAPER, 1)


def environment_area(name: str) -> tuple[int, int]:
    """Return address and size of a variable's value in the memory that /proc/PID/environ shows.

    The result is right only for a variable that was there at the exec and was not set since.
    """
    getenv = _libc.getenv
    getenv.restype = ctypes.c_void_p
    address = getenv(name.encode())
    return (address, len(ctypes.string_at(address))) if address else (0, 0)


def _call(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise EnvironmentProblem(
            f"The kernel refused prctl({option}) with {os.strerror(number)}: elasticd's workers "
            "cannot be guarded here; it needs Linux 3.4 or newer without a filter on prctl."
        )
