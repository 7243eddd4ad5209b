"""The end of a rank whose training thread waits in a call that nothing wakes."""

import os
import signal
import sys

from elasticd.train.introspection import stacks

__all__ = ["end_process"]


def end_process(why: str = "this rank is stuck") -> None:
    """Die, so that another process can take this one's place at once; `why` is told.

    It is in a library's call that looks at no signal, in a `send` that Gloo lost (what it loses of
    collectives is left without an end, see `gloo_group.py`), or in an abort of NCCL's (`nccl.py`).
    A rank that would go on alone waits for that, rather than lose the only copy of the state.
    """
    sys.stderr.write(f"elasticd: {why}; this process ends.\n{stacks.text()}\n")
    os.kill(os.getpid(), signal.SIGKILL)
