"""Where every thread of this process stands, for whoever wants to know why nothing moves.

Two ways. Python's own, asked for by message and answered by a thread: names of threads, source
lines. And `faulthandler`'s, asked for by signal: written by C code to stderr, also while a call
into C holds the GIL and no thread of Python's runs.
"""

import faulthandler
import signal
import sys
import threading
import traceback

__all__ = ["DUMP_SIGNAL", "STACKS_LIMIT_BYTES", "arm", "text"]

DUMP_SIGNAL = signal.SIGRTMIN + 6
"""Scripts and launchers use SIGUSR1 and SIGUSR2 (Slurm's notice of preemption); nobody this."""

STACKS_LIMIT_BYTES = 16_000


def text() -> str:
    """Format all threads' stacks, the main thread's first, cut to the limit."""
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
    """Have DUMP_SIGNAL write all stacks to stderr; a handler that a script has set runs too."""
    # Without a handler to chain to, faulthandler would go on to the default: the process's end.
    has_handler = signal.getsignal(DUMP_SIGNAL) not in (signal.SIG_DFL, signal.SIG_IGN)
    try:
        faulthandler.register(DUMP_SIGNAL, file=sys.stderr, all_threads=True, chain=has_handler)
    except (AttributeError, OSError, RuntimeError, ValueError):
        return  # A script may have put an object without a descriptor in the place of stderr.
