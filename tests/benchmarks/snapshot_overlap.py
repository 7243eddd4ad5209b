"""Snapshots copied beside a training step: what the step's thread waits, and what the step loses.

A transformer that really trains, its state 1 GiB. After a plain step a snapshot begins; the next
step runs beside its copy, the steps after that beside its upload. elasticd and both types of
async_save take turns, with nothing saved between them.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from elasticd.keeper.wire import message as ms
from tests.benchmarks.bench import workplace
from tests.benchmarks.call import run
from tests.benchmarks.checkpoint_site import Copied, Job, Keeper, Peer, Trained, alone, synced
from tests.benchmarks.report import Figure, Result, Series, percentile

__all__ = ["measure"]

TRIALS = 30
STATE_MIB = 1024
TOKENS = 32
PLAIN_STEPS = 3
"""Before each snapshot, to compare with."""
UPLOAD_STEPS = 10
"""At most, beside one upload."""
WARM_UP = 3


@dataclass(slots=True)
class Taken:
    """Of one form."""

    stall: list[float] = field(default_factory=list)
    """Over the bare copy next to it."""
    beside_copy: list[float] = field(default_factory=list)
    """The step in which it was copied, waiting included, over the plain ones before."""
    beside_upload: list[float] = field(default_factory=list)
    """Steps until it was durable, over the plain ones before."""
    durable_s: list[float] = field(default_factory=list)


class Training:
    """Steps of a model."""

    def __init__(self, mib: int, tokens: int) -> None:
        self.trained = Trained(mib)
        self._tokens_bt = torch.randint(0, 1000, (1, tokens))

    def step(self) -> float:
        """Train one; seconds."""
        began_s = time.perf_counter()
        self.trained.optimizer.zero_grad(set_to_none=False)  # No memory is taken in a step.
        self.trained.model(self._tokens_bt).backward()
        self.trained.optimizer.step()
        return time.perf_counter() - began_s


class Ours:
    """elasticd, a copy of either form."""

    def __init__(self, folder: Path, trained: Trained, copy: str) -> None:
        self._keeper = Keeper(f"file://{folder / copy}", folder / f"{copy}.log")
        self._job = Job(self._keeper, trained, copy)

    def begin(self) -> float:
        return self._job.commit()

    def held_s(self) -> float:
        """How long the optimizer waited for the copy."""
        overlap = self._job.overlap
        return overlap.waited_s if overlap is not None else 0.0

    def is_busy(self) -> bool:
        return self._job.client.ask(ms.GetStatus(), ms.Status).is_busy

    def wait(self) -> None:
        self._job.saving._finish_copy()
        self._job.wait()

    def close(self) -> None:
        self._job.close()
        self._keeper.close()


class Theirs:
    """async_save."""

    def __init__(self, folder: Path, trained: Trained, kind: str) -> None:
        self._peer, self._trained = Peer(kind, folder / kind), trained

    def begin(self) -> float:
        began_s = time.perf_counter()
        state = self._trained.plain
        gathered_s = time.perf_counter() - began_s
        return gathered_s + self._peer.commit(state)

    def held_s(self) -> float:
        return 0.0

    def is_busy(self) -> bool:
        return self._peer.is_busy

    def wait(self) -> None:
        self._peer.wait()

    def close(self) -> None:
        self._peer.close()


NAMES = {
    "overlapped": "elasticd, beside the step",
    "blocking": "elasticd, between two steps",
    "thread": "async_save, thread",
    "process": "async_save, process",
}


def measure(trials: int) -> Result:
    """Let all forms take turns."""
    taken = {name: Taken() for name in NAMES}
    copies: list[float] = []
    steps: list[float] = []
    with workplace() as folder, alone():
        training = Training(STATE_MIB, TOKENS)
        trained = training.trained
        forms: dict[str, Ours | Theirs] = {
            name: (Ours if name in ("overlapped", "blocking") else Theirs)(folder, trained, name)
            for name in NAMES
        }
        bare = Copied(trained.nbytes)
        try:
            for number in range(WARM_UP + trials):
                for name in sorted(NAMES, key=lambda one: (number + list(NAMES).index(one)) % 4):
                    copy_s = min(bare.once() for _ in range(3))
                    into = taken[name] if number >= WARM_UP else Taken()
                    plain = _snapshot(training.step, forms[name], copy_s, into)
                    if number >= WARM_UP:
                        copies.append(copy_s)
                        steps += plain
                if number >= WARM_UP:
                    said = ", ".join(f"{n} {taken[n].stall[-1] * 100:.1f} %" for n in NAMES)
                    print(f"step {steps[-1]:.3f} s; stall of a copy: {said}", flush=True)
        finally:
            for form in forms.values():
                form.close()
    return _result(trials, taken, copies, steps, trained.nbytes)


def _snapshot(
    step: Callable[[], float], form: "Ours | Theirs", copy_s: float, into: Taken
) -> list[float]:
    """Plain steps, a snapshot, and the steps beside it; return the plain ones."""
    step()
    plain = [step() for _ in range(PLAIN_STEPS)]
    usual_s = statistics.median(plain)
    began_s = time.perf_counter()
    stall_s = form.begin()
    beside_s = step()
    into.stall.append((stall_s + form.held_s()) / copy_s)
    into.beside_copy.append((stall_s + beside_s) / usual_s)
    for _ in range(UPLOAD_STEPS):
        if not form.is_busy():
            break
        into.beside_upload.append(step() / usual_s)
    form.wait()
    into.durable_s.append(time.perf_counter() - began_s)
    synced()
    return plain


def _result(
    trials: int, taken: dict[str, Taken], copies: list[float], steps: list[float], nbytes: int
) -> Result:
    series: list[Series] = [
        Series(name="plain step", values=tuple(steps)),
        Series(name=f"bare copy of {nbytes / 2**20:.0f} MiB", values=tuple(copies)),
    ]
    figures: list[Figure] = []
    for name, title in NAMES.items():
        found = taken[name]
        stall = tuple(100 * each for each in found.stall)
        series += [
            Series(name=f"{title}: waited, of the bare copy", values=stall, unit="%"),
            Series(name=f"{title}: the step with it", values=tuple(found.beside_copy), unit="x"),
            Series(name=f"{title}: steps beside the upload", values=tuple(found.beside_upload),
                   unit="x"),
            Series(name=f"{title}: until it was durable", values=tuple(found.durable_s)),
        ]  # fmt: skip
        target = 3.0 if name == "overlapped" else None
        figures += [
            Figure(name=f"{title}: waited / bare copy, p50", value=percentile(stall, 0.5),
                   unit="%", target=target),
            Figure(name=f"{title}: waited / bare copy, p99", value=percentile(stall, 0.99),
                   unit="%"),
            Figure(name=f"{title}: the step with it / plain, p50",
                   value=percentile(found.beside_copy, 0.5), unit="x"),
            Figure(name=f"{title}: step beside the upload / plain, p50",
                   value=percentile(found.beside_upload, 0.5), unit="x"),
        ]  # fmt: skip
    return Result(
        name="snapshot_overlap",
        title=f"Checkpoints: snapshots of {STATE_MIB} MiB beside a training step",
        command=f"python -m tests.benchmarks.snapshot_overlap --trials {trials}",
        method=METHOD,
        series=tuple(series),
        figures=tuple(figures),
    )


METHOD = (
    (
        f"A transformer with AdamW, {STATE_MIB} MiB of state, {TOKENS} tokens a step, in one "
        "process with torch's own number of threads; the keeper is the real process and writes to "
        "a folder, at the niceness that an agent gives it."
    ),
    (
        f"A turn: a step that does not count, {PLAIN_STEPS} plain steps, the snapshot, the step "
        "beside its copy, steps until it is durable. Waited: the call that begins it, and what "
        "`optimizer.step` then waited for the copy; divided by the fastest of three bare copies "
        "(one tensor, touched memory) just before."
    ),
    (
        "`async_save` with a stager that is kept from save to save, so that its memory is used "
        "again (FileSystemWriter, one rank over Gloo); the time of its call, and of the two calls "
        "of `state_dict`, which ours includes too."
    ),
    (
        "All of it shares the same cores: where a step computes on a GPU, its slow-down is less. "
        "Before a turn the kernel has written what the one before left."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)
