"""How long a training thread stands still for a snapshot of 1 GiB that is copied at once.

Beside a bare copy of as many bytes with as many threads, and beside the part of async_save during
which its caller waits. All take turns; before each turn the one before is durable.
"""

import gc
import time

from elasticd.train.state.state import core_of
from tests.benchmarks.bench import workplace
from tests.benchmarks.call import run
from tests.benchmarks.checkpoint_site import (
    Copied,
    Job,
    Keeper,
    Peer,
    Trained,
    alone,
    over,
    synced,
)
from tests.benchmarks.report import Figure, Result, Series

__all__ = ["measure"]

TRIALS = 30
STATE_MIB = 1024
WARM_UP = 3
"""Both buffers of the keeper, and the peers' own memory, are touched by then."""
PAUSE_S = 0.2
"""What followed the last commit (deleting an older checkpoint) is over."""
PEERS = ("thread", "process")


def measure(trials: int) -> Result:
    """Copy, snapshot, and each peer in turn."""
    stalls: dict[str, list[float]] = {name: [] for name in ("elasticd", *PEERS)}
    floors: dict[str, list[float]] = {name: [] for name in stalls}
    first: list[float] = []
    with workplace() as folder, alone():
        trained = Trained(STATE_MIB)
        keeper = Keeper(f"file://{folder / 'saved'}", folder / "keeper.log")
        job = Job(keeper, trained, "blocking")
        peers = {kind: Peer(kind, folder / kind) for kind in PEERS}
        bare = Copied(trained.nbytes)
        try:
            for number in range(WARM_UP + trials):
                for name, found in stalls.items():
                    time.sleep(PAUSE_S)
                    synced()
                    gc.collect()
                    before_s = bare.once()
                    if name == "elasticd":
                        took_s = job.commit()
                        job.wait()
                    else:
                        began_s = time.perf_counter()
                        state = trained.plain
                        took_s = time.perf_counter() - began_s + peers[name].commit(state)
                        peers[name].wait()
                    copy_s = min(before_s, bare.once(), bare.once())
                    if number < WARM_UP:
                        first += [took_s] if name == "elasticd" else []
                        continue
                    found.append(took_s)
                    floors[name].append(copy_s)
                if number >= WARM_UP:
                    said = ", ".join(f"{n} {s[-1]:.3f} of {floors[n][-1]:.3f} s"
                                     for n, s in stalls.items())  # fmt: skip
                    print(said, flush=True)
        finally:
            job.close()
            keeper.close()
            for peer in peers.values():
                peer.close()
    return _result(trials, stalls, floors, first, trained)


def _result(
    trials: int,
    stalls: dict[str, list[float]],
    floors: dict[str, list[float]],
    first: list[float],
    trained: Trained,
) -> Result:
    tensors = core_of(trained.state).tree().tensors
    titles = {
        "elasticd": "elasticd, blocking",
        "thread": "async_save, thread",
        "process": "async_save, process",
    }
    series = [
        Series(name="bare copy", values=tuple(s for each in floors.values() for s in each)),
        Series(name="elasticd, the first ones (memory is taken)", values=tuple(first)),
    ]
    figures = []
    for name, title in titles.items():
        ratio = over(stalls[name], floors[name])
        series += [
            Series(name=f"{title}: stands still", values=tuple(stalls[name])),
            Series(name=f"{title} / bare copy next to it", values=ratio.values, unit="x"),
        ]
        target = 1.15 if name == "elasticd" else None
        figures += [
            Figure(name=f"{title} / bare copy, p50", value=ratio.at(0.5), unit="x", target=target),
            Figure(name=f"{title} / bare copy, p99", value=ratio.at(0.99), unit="x"),
        ]
    return Result(
        name="snapshot_stall",
        title=f"Checkpoints: a blocking snapshot of {STATE_MIB} MiB",
        command=f"python -m tests.benchmarks.snapshot_stall --trials {trials}",
        method=(
            (
                f"`State(model=..., optimizer=...)` of a transformer and AdamW: {len(tensors)} "
                f"tensors, {trained.nbytes / 2**20:.0f} MiB, of which "
                f"{sum(each.nbytes < 1 << 20 for each in tensors)} are smaller than 1 MiB. What a "
                "commit does where a snapshot is due (`SnapshotTaker.committed`, "
                "`--checkpoint-every 1steps`, copy `blocking`), with the real keeper process and a "
                "folder: asking whether there is room, taking the state apart, claiming a buffer, "
                "copying, handing over."
            ),
            *METHOD,
        ),
        series=tuple(series),
        figures=tuple(figures),
    )


METHOD = (
    (
        "Bare copy: one tensor of as many bytes to touched shared memory, with torch's own number "
        "of threads; the fastest of three, one before and two after the snapshot."
    ),
    (
        "Peers: `dcp.async_save` of the same state_dicts, types thread and process, with a stager "
        "that is kept, so that its memory is used again; from the call of `state_dict` until "
        f"async_save returns. The first {WARM_UP} of each do not count."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)
