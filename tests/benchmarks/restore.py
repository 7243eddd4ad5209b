"""A state of 1 GiB back in its tensors: from the keeper's memory, from disk, and by other ranks.

What no rank has comes back by `restore`, as at a job's start. From memory it stands beside a bare
copy; from disk (the page cache is warm) beside bare parallel reads, torch.load and dcp.load. Then
a checkpoint of four ranks is restored by as many and by three, and one of two by two and by five.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import HashStore
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from elasticd.checkpoint.format.share_layout import PART_BYTES
from elasticd.keeper.client import Client
from elasticd.keeper.wire import message as ms
from elasticd.train.restore.restore import restore
from elasticd.train.state.state import core_of
from tests.benchmarks.bench import workplace
from tests.benchmarks.call import run
from tests.benchmarks.checkpoint_site import Copied, Job, Keeper, Trained, alone, over
from tests.benchmarks.durable_save import THREADS, write_bare
from tests.benchmarks.report import Figure, Result, Series
from tests.benchmarks.resharding import reshard

__all__ = ["measure"]

TRIALS = 20
STATE_MIB = 1024
WARM_UP = 2


class Alone:
    """A group of one rank."""

    rank, size, generation = 0, 1, 1

    def __init__(self) -> None:
        self.store: Any = HashStore()


def measure(trials: int) -> Result:
    """Each form in turn; then the other numbers of ranks."""
    took: dict[str, list[float]] = {name: [] for name in NAMES}
    with workplace() as folder, alone():
        trained = Trained(STATE_MIB)
        url = f"file://{folder / 'saved'}"
        keepers = [Keeper(url, folder / "keeper.log")]
        job = Job(keepers[0], trained, "blocking")
        job.commit()
        job.wait()
        expected = [each.clone() for each in core_of(trained.state).tree().tensors]
        bare = Copied(trained.nbytes)
        plain = {"model": trained.model.state_dict(), "optimizer": trained.optimizer.state_dict()}
        torch.save(plain, folder / "one.pt")
        dcp_save(plain, checkpoint_id=str(folder / "dcp"))
        write_bare(folder / "many", bare.memory.view, THREADS)
        other = job.client
        forms: dict[str, Callable[[], object]] = {
            "copy": bare.once,
            "memory": lambda: _restore(job.client, trained, "memory"),
            "warm": lambda: _read(folder / "many", bare.memory.view),
            "fresh": lambda: _read(folder / "many", None),
            "storage": lambda: _restore(other, trained, "storage"),
            "torch": lambda: _torch_load(trained, folder / "one.pt"),
            "dcp": lambda: dcp_load(plain, checkpoint_id=str(folder / "dcp")),
        }
        try:
            for number in range(WARM_UP + trials):
                # One that has nothing in memory: what it read once it keeps for a while.
                fresh = Keeper(url, folder / "other.log")
                keepers.append(fresh)
                other = Client(fresh.name)
                other.ask(ms.List(), ms.Listed)
                for name, form in forms.items():
                    began_s = time.perf_counter()
                    form()
                    if number >= WARM_UP:
                        took[name].append(time.perf_counter() - began_s)
                other.close()
                keepers.pop().close()
                if number >= WARM_UP:
                    print(", ".join(f"{n} {s[-1]:.2f} s" for n, s in took.items()), flush=True)
            for tensor, before in zip(core_of(trained.state).tree().tensors, expected, strict=True):
                assert torch.equal(tensor, before), "what came back is not what was saved"
        finally:
            job.close()
            for keeper in keepers:
                keeper.close()
        series, figures = reshard(folder, max(3, trials // 2))
    return _result(trials, took, series, figures)


NAMES = {
    "copy": "bare copy",
    "memory": "elasticd, from the keeper's memory",
    "warm": f"bare read, {THREADS} threads, into touched memory",
    "fresh": f"bare read, {THREADS} threads, into fresh memory",
    "storage": "elasticd, from disk",
    "torch": "torch.load and load_state_dict",
    "dcp": "dcp.load in place",
}


def _restore(client: Client, trained: Trained, place: str) -> None:
    restored = restore(Alone(), client, core_of(trained.state), lambda: False)
    assert restored.place == place, restored


def _torch_load(trained: Trained, path: Path) -> None:
    found = torch.load(path, weights_only=True)
    trained.model.load_state_dict(found["model"])
    trained.optimizer.load_state_dict(found["optimizer"])


def _read(folder: Path, memory: memoryview | None) -> None:
    """Read all files of a folder, by as many threads as the keeper has."""
    files = sorted(folder.iterdir(), key=lambda each: int(each.name))
    size = sum(each.stat().st_size for each in files)
    place = torch.empty(size, dtype=torch.uint8).numpy().data if memory is None else memory

    def read(path: Path) -> None:
        start, line = int(path.name), os.open(path, os.O_RDONLY)
        left = place[start : start + PART_BYTES]
        at = 0
        while at < len(left):
            count = os.preadv(line, [left[at:]], at)
            if not count:
                break
            at += count
        os.close(line)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read, files))


def _result(
    trials: int,
    took: dict[str, list[float]],
    more_series: list[Series],
    more_figures: list[Figure],
) -> Result:
    memory = over(took["memory"], took["copy"], "from memory / bare copy")
    fresh = over(took["storage"], took["fresh"], "from disk / bare read into fresh memory")
    warm = over(took["storage"], took["warm"], "from disk / bare read into touched memory")
    figures = [
        Figure(name="from the keeper's memory / bare copy, p50", value=memory.at(0.5), unit="x",
               target=1.2),
        Figure(name="from the keeper's memory / bare copy, p99", value=memory.at(0.99), unit="x"),
        Figure(name="from disk / bare read into fresh memory, p50", value=fresh.at(0.5), unit="x",
               target=1.15),
        Figure(name="from disk / bare read into fresh memory, p99", value=fresh.at(0.99),
               unit="x"),
        Figure(name="from disk / bare read into touched memory, p50", value=warm.at(0.5),
               unit="x"),
    ]  # fmt: skip
    for peer in ("torch", "dcp"):
        ratio = over(took[peer], took["storage"])
        figures.append(
            Figure(name=f"{NAMES[peer]} / elasticd from disk, p50", value=ratio.at(0.5), unit="x")
        )
    return Result(
        name="restore",
        title=f"Checkpoints: {STATE_MIB} MiB back into tensors",
        command=f"python -m tests.benchmarks.restore --trials {trials}",
        method=METHOD,
        series=(
            *(Series(name=NAMES[name], values=tuple(values)) for name, values in took.items()),
            memory,
            fresh,
            warm,
            *more_series,
        ),
        figures=(*figures, *more_figures),
    )


METHOD = (
    (
        "elasticd: `restore` of a world of one into the live `State`, as a job does at its start: "
        "finding the newest, the bytes (mapped, or read by the keeper and all blocks verified), "
        "copying into parameters and the optimizer's state, the entry in the log. The keeper's "
        f"memory holds the snapshot; for disk, another keeper with nothing in memory. {THREADS} "
        "threads read."
    ),
    (
        f"Bare read: files of {PART_BYTES >> 20} MiB by {THREADS} threads with preadv, nothing "
        "verified: into memory that is there, and into memory that is taken for it. The page "
        "cache has all files, also those of torch.load and dcp.load, which load the same state "
        "(torch.load into new tensors, then load_state_dict; dcp.load in place)."
    ),
    (
        "Other numbers of ranks: each a thread with a connection to one keeper, which reads its "
        "equal share of the bytes (`divided`) with verification; the time until all have theirs. "
        "The broadcast between ranks that follows is the same for any number of shares saved, and "
        "is left out: on one machine it would be a copy through loopback."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)
