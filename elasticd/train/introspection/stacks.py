"""Where every thread of this process stands, to show why nothing moves.

There are two ways. Python's own is requested by message and answered by a thread, with names of
threads and source lines. `faulthandler`'s is requested by signal: C code writes it to stderr, even
while a call into C holds the GIL and no Python thread runs.
"""

import faulthandler
import signal
import sys
import threading
import traceback

__all__ = ["DUMP_SIGNAL", "STACKS_LIMIT_BYTES", "arm", "text"]

DUMP_SIGNAL = signal.SIGRTMIN + 6
"""Scripts and launchers use SIGUSR1 and SIGUSR2 (Slurm's notice of preemption); this one is
free."""

STACKS_LIMIT_BYTES = 16_000


def text() -> str:
    """Return all threads' stacks, the main thread's first, cut to the limit."""
    threads = {thread.ident: thread for thread in threading.enumerate()}
    main = threading.main_thread().ident
    parts = []
    for ident, frame in sorted(sys._current_frames().items(), key=lambda item: item[0] != main):
        name = threads[ident].name if ident in threads else "not Python's"
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"Thread {name} ({ident}), innermost call last:\n{stack}")
    whole = "\n".join(parts).encode(errors="backslashreplace")
    if len(whole) > STACKS_LIMIT_BYTES:
        mark = b"\n... (cut)\n"
        whole = whole[: STACKS_LIMIT_BYTES - len(mark)] + mark
    return whole.decode(errors="ignore")


def arm() -> None:
    """Make DUMP_SIGNAL write all stacks to stderr; a handler that a script has set runs too."""
    # Without a handler to chain to, faulthandler would go on to the default: the process's end.
    has_handler = signal.getsignal(DUMP_SIGNAL) not in (signal.SIG_DFL, signal.SIG_IGN)
    try:
        faulthandler.register(DUMP_SIGNAL, file=sys.stderr, all_threads=True, chain=has_handler)
    except (AttributeError, OSError, RuntimeError, ValueError):
        return  # A script may have put an object without a descriptor in the place of stderr.
