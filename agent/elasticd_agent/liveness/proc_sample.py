"""Reads from /proc the present state of a process's threads and its CPU time."""

import os

from elasticd_agent.liveness.hang_detector import ProcessSample

__all__ = ["read_sample"]

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_STAT_LIMIT_BYTES = 1024
THREADS_LIMIT = 512


def read_sample(pid: int) -> ProcessSample | None:
    """Read the sample; None if the process is gone.

    It stops at the first thread that runs, since no more is asked for. These files take no lock
    that a stuck process could hold (`cmdline` and `environ` do).
    """
    whole = _stat(f"/proc/{pid}/stat")
    if whole is None:
        return None
    cpu_s = (int(whole[11]) + int(whole[12])) * _TICK_S
    states = whole[0].decode()
    if states == "R":
        return ProcessSample(states=states, cpu_s=cpu_s)
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return None
    for task in tasks[:THREADS_LIMIT]:
        if task == str(pid):
            continue
        found = _stat(f"/proc/{pid}/task/{task}/stat")
        if found is not None:
            states += found[0].decode()
            if found[0] == b"R":
                break
    return ProcessSample(states=states, cpu_s=cpu_s)


def _stat(path: str) -> list[bytes] | None:
    """Return the fields of the line from the state on."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(file, _STAT_LIMIT_BYTES)
    except OSError:
        return None
    finally:
        os.close(file)
    # The name in parentheses may hold spaces and parentheses itself.
    return None if b")" not in text else text[text.rindex(b")") + 2 :].split()
