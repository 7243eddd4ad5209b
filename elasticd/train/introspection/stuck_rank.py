"""Ends a rank whose training thread waits in a call that nothing wakes."""

import os
import signal
import sys

from elasticd.train.introspection import stacks

__all__ = ["end_process"]


def end_process(why: str = "this rank is stuck") -> None:
    """End this process, so that another can take its place at once; `why` is reported.

    It is in a library's call that looks at no signal, in a `send` that Gloo lost (lost collectives
    are left without an end, see `gloo_group.py`), or in an abort of NCCL's (`nccl.py`). A rank that
    would go on alone waits for that instead of losing the only copy of the state.
    """
    sys.stderr.write(f"elasticd: {why}; this process ends.\n{stacks.text()}\n")
    os.kill(os.getpid(), signal.SIGKILL)
