"""Lets SIGTERM end a container's first process from its first moments on.

The kernel drops a signal for which process 1 has no handler. So a pod that was deleted while its
agent still imported ran on until the end of its grace, which is two minutes. Commands that end in
another way set handlers of their own. The package imports this before all else of the command line,
whose imports take the longest part of a start.
"""

import os
import signal

__all__ = ["end_at_sigterm"]


def end_at_sigterm() -> None:
    """Have SIGTERM end this process, as any other's, if it is process 1 and nobody has done so."""
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))


end_at_sigterm()
