"""What runs inside an agent's pod: it looks for workers, kills one, or stops one for a while.

`pod_exec` sends the text of this file along, so it needs no elasticd there, only Python and its
standard library. A stop undoes itself: the process that stops the worker is a child of its own
session in that pod, which continues the worker after at most so many seconds. It needs neither
the connection nor the Job that asked for it; if the pod ends before, the worker ends too.
"""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["LONGEST_S", "look", "main", "stop"]

MARK = b"ELASTICD_WORKER="
JOB = b"ELASTICD_JOB="
TITLE = re.compile(rb"elasticd: (\S+) (?:rank (\d+)|waits for a world)")
LONGEST_S = 60.0


def read(pid: int, name: str) -> bytes:
    """Return a file of a process; empty: it has ended, or is another user's."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def variable(environ: bytes, name: bytes) -> bytes:
    """Return a variable; empty: there is none, or only room for one."""
    for entry in environ.split(b"\0"):
        if entry.startswith(name):
            return entry[len(name) :].strip(b"_")
    return b""


def stat(pid: int) -> tuple[bytes, int, int] | None:
    """Return the state of a process, its parent, and when it began; None: it is not there."""
    fields = read(pid, "stat").rpartition(b")")[2].split()
    return (fields[0], int(fields[1]), int(fields[19])) if len(fields) > 19 else None


def look() -> dict[str, Any]:
    """List the workers of this container, and not what they have started themselves."""
    marks: dict[int, tuple[bytes, tuple[bytes, int, int], bytes]] = {}
    found: list[dict[str, Any]] = []
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        environ, now = read(pid, "environ"), stat(pid)
        mark = variable(environ, MARK)
        if mark and now is not None and now[0] not in b"ZX":
            marks[pid] = (mark, now, environ)
    for pid, (mark, now, environ) in marks.items():
        if now[1] in marks and marks[now[1]][0] == mark:
            continue
        title = TITLE.match(read(pid, "cmdline"))
        job = title.group(1) if title else variable(environ, JOB)
        rank = title.group(2) if title else variable(environ, b"RANK=")
        found.append(
            {
                "pid": pid,
                "ticks": now[2],
                "job": job.decode(errors="replace"),
                "rank": int(rank) if rank and rank.isdigit() else None,
            }
        )
    return {"workers": found}


def send(pid: int, ticks: int, number: int) -> bool:
    """Send a signal to that very process; return whether it was there."""
    now = stat(pid)
    if pid <= 1 or now is None or now[2] != ticks or now[0] in b"ZX":
        return False
    if not variable(read(pid, "environ"), MARK):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def stop(pid: int, ticks: int, for_s: float) -> bool:
    """Stop a worker, and have it continued whatever becomes of us."""
    ready, told = os.pipe()
    if os.fork():
        os.close(told)
        return os.read(ready, 1) == b"1"
    try:
        os.close(ready)
        os.setsid()
        for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(each, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):  # The connection must not wait for us.
            os.dup2(null, number)
        until_s = time.monotonic() + min(for_s, LONGEST_S)
        was_there = send(pid, ticks, signal.SIGSTOP)
        try:
            os.write(told, b"1" if was_there else b"0")
            while was_there and time.monotonic() < until_s:
                time.sleep(0.05)
        finally:
            if was_there:
                send(pid, ticks, signal.SIGCONT)
    finally:
        os._exit(0)


def main(words: Sequence[str]) -> dict[str, Any]:
    """Do what the words say: `look`, `kill PID TICKS` or `stop PID TICKS SECONDS`."""
    if words[0] == "look":
        return look()
    pid, ticks = int(words[1]), int(words[2])
    if words[0] == "kill":
        return {"done": send(pid, ticks, signal.SIGKILL)}
    return {"done": stop(pid, ticks, float(words[3]))}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])), flush=True)
