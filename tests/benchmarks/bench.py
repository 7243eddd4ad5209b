"""The frame of every benchmark: a folder of its own, its processes, and their certain end.

We are a subreaper, so whatever a killed launcher leaves behind is found below us and killed at the
end, also after Ctrl-C or SIGTERM. If we ourselves are killed, the kernel ends what we started, and
the scripts end because nobody listens.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from elasticd.control.local_run.launch import adopt_orphans, end_descendants
from elasticd.store.private_etcd.embedded import bound_to_us
from elasticd_agent.pool.process.process_table import children_of

__all__ = ["ROOT", "STEP", "end", "own_environ", "program", "send", "start", "tree", "workplace"]

ROOT = Path(__file__).parents[2]
STEP = Path(__file__).with_name("step.py")
"""The script under test."""


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """Give a folder; at the end, however it comes, no process and no file is left."""
    adopt_orphans()
    # Short: the path of a Unix socket has 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="elasticd-bench-"))
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield folder
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_descendants(0.0)
        if not os.environ.get("BENCH_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, before)


def own_environ(more: Mapping[str, str]) -> dict[str, str]:
    """Return our environment without what steers elasticd or torchrun."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ELASTICD_", "PET_"))}
    return {**kept, **more}


def program(name: str) -> str:
    """Return a program of the virtual environment that we run in."""
    return str(Path(sys.executable).with_name(name))


def start(
    argv: Sequence[str], *, env: Mapping[str, str], log: Path, bound: bool = True
) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own; `bound` to our life costs it 20 ms."""
    with log.open("ab") as out:
        return subprocess.Popen(
            bound_to_us(list(argv)) if bound else list(argv),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=dict(env),
            cwd=log.parent,
            start_new_session=True,
        )


def end(process: "subprocess.Popen[bytes]", grace_s: float = 10.0) -> None:
    """SIGTERM, then SIGKILL of its whole tree."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        send(tree(process.pid), signal.SIGKILL)
        process.wait(5.0)


def tree(pid: int) -> list[int]:
    """List a process and all that descends from it, parents first."""
    found = [pid]
    for each in found:
        found.extend(child for child in children_of(each) if child not in found)
    return found


def send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
