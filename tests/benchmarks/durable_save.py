"""A snapshot of 1 GiB from the hand-over to its commit on the local disk, beside bare writes.

The bare writes are of the same bytes out of touched memory, and end with fsync: one file by one
process, and parts of the keeper's size by as many threads as it has. torch.save and dcp.save, which
end with an fsync too, stand beside them.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from elasticd.checkpoint.format.share_layout import PART_BYTES
from tests.benchmarks.bench import workplace
from tests.benchmarks.call import run
from tests.benchmarks.checkpoint_site import (
    Copied,
    Job,
    Keeper,
    Trained,
    alone,
    over,
    remove,
    synced,
)
from tests.benchmarks.report import Figure, Result, Series, percentile

__all__ = ["THREADS", "measure", "write_bare"]

TRIALS = 20
STATE_MIB = 1024
WARM_UP = 3
THREADS = 8
"""As many as the keeper has by default (`--checkpoint-parallel`)."""


def measure(trials: int) -> Result:
    """All forms in turn; before each the kernel has written what was left."""
    took: dict[str, list[float]] = {name: [] for name in NAMES}
    cpu: list[float] = []
    with workplace() as folder, alone():
        trained = Trained(STATE_MIB)
        keeper = Keeper(f"file://{folder / 'saved'}", folder / "keeper.log")
        job = Job(keeper, trained, "blocking")
        memory = Copied(trained.nbytes).memory
        plain = {"model": trained.model.state_dict(), "optimizer": trained.optimizer.state_dict()}
        forms: dict[str, Callable[[], object]] = {
            "torch": lambda: _torch_save(plain, folder / "torch"),
            "dcp": lambda: dcp_save(plain, checkpoint_id=str(folder / "dcp")),
            "one": lambda: write_bare(folder / "one", memory.view, 1),
            "many": lambda: write_bare(folder / "many", memory.view, THREADS),
        }
        try:
            for number in range(WARM_UP + trials):
                found = {}
                for name, write in forms.items():
                    found[name] = _timed(write)
                    # So that the next one finds as much free memory for its pages.
                    remove(folder / name)
                synced()
                job.commit()
                before_s, began_s = keeper.cpu_s, time.perf_counter()
                job.wait()
                found["elasticd"] = time.perf_counter() - began_s
                used_s = keeper.cpu_s - before_s
                if number < WARM_UP:
                    continue
                for name, seconds in found.items():
                    took[name].append(seconds)
                cpu.append(used_s / (trained.nbytes / 1e9))
                print(", ".join(f"{n} {s:.2f} s" for n, s in found.items()), flush=True)
        finally:
            job.close()
            keeper.close()
    return _result(trials, took, cpu, trained.nbytes)


NAMES = {
    "elasticd": "elasticd, hand-over to commit",
    "one": "bare write, one process, one file",
    "many": f"bare write, {THREADS} threads, parts of {PART_BYTES >> 20} MiB",
    "torch": "torch.save and fsync",
    "dcp": "dcp.save",
}


def write_bare(folder: Path, memory: memoryview, threads: int) -> None:
    """Write memory to files, durably: one, or as many as a checkpoint has parts."""
    folder.mkdir(exist_ok=True)
    size = PART_BYTES if threads > 1 else len(memory)

    def write(start: int) -> None:
        line = os.open(folder / str(start), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        left = memory[start : start + size]
        while left:
            left = left[os.write(line, left[:PART_BYTES]) :]
        os.fdatasync(line)
        os.close(line)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(write, range(0, len(memory), size)))
    _sync(folder)


def _torch_save(plain: object, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / "one.pt").open("wb") as file:
        torch.save(plain, file)
        file.flush()
        os.fsync(file.fileno())
    _sync(folder)


def _sync(folder: Path) -> None:
    line = os.open(folder, os.O_RDONLY)
    os.fsync(line)
    os.close(line)


def _timed(what: Callable[[], object]) -> float:
    synced()
    began_s = time.perf_counter()
    what()
    return time.perf_counter() - began_s


def _result(trials: int, took: dict[str, list[float]], cpu: list[float], nbytes: int) -> Result:
    ours = took["elasticd"]
    of_one = over(took["one"], ours, "throughput of elasticd / bare write by one")
    of_many = over(took["many"], ours, "throughput of elasticd / bare write by threads")
    figures = [
        Figure(name="throughput / bare write by one process, p50", value=of_one.at(0.5), unit="x",
               target=0.9, is_least=True),
        Figure(name=f"throughput / bare write by {THREADS} threads, p50", value=of_many.at(0.5),
               unit="x", target=0.9, is_least=True),
        Figure(name=f"throughput / bare write by {THREADS} threads, worst of a hundred",
               value=of_many.at(0.01), unit="x"),
        Figure(name="the keeper's processor time per GB, p50", value=percentile(cpu, 0.5),
               unit="core-s", target=1.5),
        Figure(name="the keeper's processor time per GB, p99", value=percentile(cpu, 0.99),
               unit="core-s"),
    ]  # fmt: skip
    for peer in ("torch", "dcp"):
        ratio = over(took[peer], ours)
        figures.append(
            Figure(name=f"{NAMES[peer]} / elasticd, time, p50", value=ratio.at(0.5), unit="x")
        )
    return Result(
        name="durable_save",
        title=f"Checkpoints: {STATE_MIB} MiB to the local disk",
        command=f"python -m tests.benchmarks.durable_save --trials {trials}",
        method=METHOD,
        series=(
            *(Series(name=NAMES[name], values=tuple(values)) for name, values in took.items()),
            of_one,
            of_many,
            Series(name="the keeper's processor time per GB", values=tuple(cpu), unit="core-s"),
        ),
        figures=tuple(figures),
        more={"nbytes": nbytes},
    )


METHOD = (
    (
        "elasticd: from the moment the training thread goes on until the keeper says that the "
        "checkpoint is committed: sums of all blocks, 17 files with fdatasync, links, fsync of "
        "folders, fragment, manifest, entry of the log; niceness 5. Meanwhile the trainer waits."
    ),
    (
        "Bare writes: the same number of bytes out of touched shared memory with `os.write`, "
        "`fdatasync` and an fsync of the folder; no checksum. Deleting is in no time. Before each, "
        "`sync`. The page cache takes what fits; where the disk is slower than that, all wait for "
        "the disk."
    ),
    (
        "torch.save and dcp.save serialise the same state in the trainer's process, in which "
        "nothing else runs meanwhile. Processor time: user and system of the keeper process, from "
        f"/proc/PID/stat. The first {WARM_UP} of each do not count."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)
