"""The end of a rank whose training thread waits in a call that nothing wakes."""

import os
import signal
import sys

from elasticd.train import stacks

__all__ = ["end_process"]


def end_process() -> None:
    """Die, so that another process can take this one's place at once.

    Gloo loses a send whose write fails: its pair keeps it to try again (`Pair::sendAsyncMode`), and
    `Pair::signalException` tells those that wait for a receive or for the peer, but not those
    whose bytes wait to be written. Who waits for it waits until the timeout of the collective,
    whatever is done to the sockets. It takes a peer that dies with unread data between its asking
    for the bytes and our writing them.
    A rank that would go on alone waits for that, rather than lose the only copy of the state.
    """
    sys.stderr.write(f"elasticd: this rank is stuck and ends.\n{stacks.text()}\n")
    os.kill(os.getpid(), signal.SIGKILL)
