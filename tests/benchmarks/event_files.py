"""What event files cost a step: `python -m tests.benchmarks.event_files`.

One training steps with event files and without in turn; each commit is timed after a forward and a
backward pass and 8 MB of other memory.
"""

import argparse
import gc
import json
import os
import random
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch

from elasticd.script.events import StepEvents
from elasticd.tensorboard.sender import Sender
from elasticd.train.scalars.event_feed import EventFeed
from elasticd.train.scalars.histogram import counted
from elasticd.train.state.state import core_of
from tests.benchmarks.commit_cost import Training
from tests.benchmarks.report import Figure, Result, Series, dump, show

__all__ = ["measure"]

TRIALS = 1000
STEP_US = 50_000.0
SHARE = 0.001
WEIGHTS = 1_000_000
STEPS_A_BEAT = 4
"""Of 50 ms."""

_STEPS = (
    "Model and step of commit_cost; each commit is given a loss tensor and two floats. A process "
    "writes event files to a folder, as beside an agent; the beats' share is called five times a "
    "second. In each turn a step with event files and one without, in an order that is drawn."
)
_PARTS = (
    "elasticd.progress: the part that goes to the writer, three floats. A histogram: of 10^6 "
    "weights in float32 on the CPU, one thread of torch; only commits that are given it pay."
)
_CLOCK = (
    "CPU time of the thread, so that a busy machine shows less; cold caches. Above: the difference "
    "of the two commits of one turn. A heartbeat hands on what four steps were given."
)
METHOD = (
    _STEPS,
    _CLOCK,
    _PARTS,
    "The writer: its processor time for each step that it was sent, its files included.",
)


@contextmanager
def writer(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Start a writer as an agent does; give the name of its socket."""
    name = f"elasticd-bench-{secrets.token_hex(8)}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("\0" + name)
    listener.listen(4)
    process = subprocess.Popen(
        [sys.executable, "-m", "elasticd.tensorboard.writer", name],
        stdin=subprocess.PIPE,
        pass_fds=(listener.fileno(),),
    )
    settings = {
        "url": f"file://{folder}", "folder": "job", "job": "job", "uid": "0" * 16, "node": "node",
        "listener": listener.fileno(),
    }  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps(settings).encode() + b"\n")
    process.stdin.flush()
    try:
        yield name, psutil.Process(process.pid)
    finally:
        process.stdin.close()
        process.wait()
        listener.close()


def measure(trials: int = TRIALS) -> Result:
    """Time commits in turn, then the parts for themselves."""
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, writer(Path(folder)) as (name, process):
        gc.collect()
        gc.disable()
        try:
            without, with_files, beats, cpu_us = _commits(trials, name, process)
            told = _progress(trials, name)
            weights = torch.randn(WEIGHTS)
            histograms = _timed(lambda: counted(weights).tolist(), 100)
        finally:
            gc.enable()
        resident_mb = process.memory_info().rss / 1e6
    above = Series(
        name="above, of one turn",
        values=tuple(b - a for a, b in zip(without, with_files, strict=True)),
        unit="us",
    )
    series = (
        Series(name="commit without event files", values=without, unit="us"),
        Series(name="commit with event files", values=with_files, unit="us"),
        above,
        Series(name="heartbeat, for each step", values=beats, unit="us"),
        Series(name="elasticd.progress, the part of event files", values=told, unit="us"),
        Series(name="histogram of 10^6 weights", values=histograms, unit="us"),
    )
    target = STEP_US * SHARE
    steps = [
        Figure(
            name=f"event files, a step with its share of a heartbeat, {name}",
            value=series[1].at(share) - series[0].at(share) + series[3].at(share),
            unit="us",
            target=target,
        )
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]
    figures = (
        *steps,
        Figure(name="the writer, processor time a step", value=cpu_us, unit="us"),
        Figure(name="the writer, resident, for a folder", value=resident_mb, unit="MB"),
    )
    return Result(
        name="event_files",
        title="TensorBoard",
        command=f"python -m tests.benchmarks.event_files --trials {trials}",
        method=METHOD,
        series=series,
        figures=figures,
        notes=(_machine(load),),
    )


def _machine(before: float) -> str:
    after = os.getloadavg()[0]
    return f"Load average {before:.1f} when it began, {after:.1f} when it ended; nice {os.nice(0)}."


def _commits(
    trials: int, name: str, process: psutil.Process
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...], float]:
    training, feed = Training(), EventFeed(Sender(name))
    feed.begin(1, 0, 0)
    found: dict[bool, list[float]] = {False: [], True: []}
    draw, cpu_s = random.Random(1), 0.0
    beats: list[float] = []
    for trial in range(trials + 50):
        if trial == 50:  # Past probation, and all memory taken; the writer has imported.
            cpu_s = sum(process.cpu_times()[:2])
        for is_fed in draw.sample((False, True), 2):
            core_of(training.state).commit_scalars.feed = feed if is_fed else None
            training.step()
            began_ns = time.thread_time_ns()
            training.state.commit(loss=training.loss, lr=0.1, scale=1.0)
            found[is_fed].append((time.thread_time_ns() - began_ns) / 1e3)
        if trial % STEPS_A_BEAT == 0:
            began_ns = time.thread_time_ns()
            feed.poll()
            beats.append((time.thread_time_ns() - began_ns) / 1e3 / STEPS_A_BEAT)
    feed.end()
    time.sleep(1.0)  # The writer's last file.
    cpu_s = sum(process.cpu_times()[:2]) - cpu_s
    commits = tuple(found[False][50:]), tuple(found[True][50:]), tuple(beats[15:])
    return *commits, cpu_s / trials * 1e6


def _progress(trials: int, name: str) -> tuple[float, ...]:
    events = StepEvents(Sender(name), 2)
    steps = iter(range(1, trials + 2))
    numbers = {"loss": 0.5, "lr": 0.1, "scale": 1.0}
    found = _timed(lambda: events.report(next(steps), numbers), trials)
    events.flush()
    return found


def _timed(function: Callable[[], object], trials: int) -> tuple[float, ...]:
    found = []
    for _ in range(trials):
        began_ns = time.thread_time_ns()
        function()
        found.append((time.thread_time_ns() - began_ns) / 1e3)
    return tuple(found)


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(args)
    result = measure(given.trials)
    show(result)
    if given.json is not None:
        dump([result], given.json)


if __name__ == "__main__":
    main()
