"""What frequent snapshots cost in all: 64 MiB every 10 steps of about 50 ms, beside none.

One process trains in blocks that take turns, in the order a b, b a: with snapshots as in a job
(`elasticd.run`), and without. The uploads run on the same cores: what they cost is in the blocks.
"""

import random
import statistics
import time

from tests.benchmarks.bench import workplace
from tests.benchmarks.call import run
from tests.benchmarks.checkpoint_site import Job, Keeper, synced
from tests.benchmarks.report import Figure, Result, Series, percentile
from tests.benchmarks.snapshot_overlap import Training

__all__ = ["measure"]

TRIALS = 40
STATE_MIB = 64
EVERY_STEPS = 10
BLOCK = 40
WARM_UP = 2
STEP_S = 0.045
TOKENS_LIMIT = 1024
RESAMPLES = 2000


def measure(trials: int) -> Result:
    """Train in pairs of blocks."""
    ratios: list[float] = []
    plain: list[float] = []
    saved: list[float] = []
    with workplace() as folder:
        training, tokens = _calibrated()
        keeper = Keeper(f"file://{folder / 'saved'}", folder / "keeper.log")
        job = Job(keeper, training.trained, "overlapped", every_steps=EVERY_STEPS)
        try:
            for number in range(WARM_UP + trials):
                took: dict[bool, list[float]] = {}
                for is_saving in (False, True) if number % 2 else (True, False):
                    synced()
                    took[is_saving] = _block(training, job if is_saving else None)
                    job.saving._finish_copy()
                    if job.saving.saved_step > 0:
                        job.wait(job.saving.saved_step)
                if number >= WARM_UP:
                    plain += took[False]
                    saved += took[True]
                    ratios.append(sum(took[True]) / sum(took[False]))
                    print(f"{(ratios[-1] - 1) * 100:.2f} %", flush=True)
        finally:
            job.close()
            keeper.close()
    return _result(trials, ratios, plain, saved, tokens)


def _calibrated() -> tuple[Training, int]:
    """A training whose steps take about as long as wanted."""
    tokens = 64
    while True:
        training = Training(STATE_MIB, tokens)
        for _ in range(3):
            training.step()
        step_s = statistics.median(training.step() for _ in range(7))
        if step_s >= STEP_S or tokens >= TOKENS_LIMIT:
            return training, tokens
        tokens = min(TOKENS_LIMIT, max(tokens + 32, int(tokens * STEP_S / step_s)))


def _block(training: Training, job: Job | None) -> list[float]:
    """Seconds of each step, with all that saving adds to it."""
    training.step()
    took = []
    for _ in range(BLOCK):
        began_s = time.perf_counter()
        training.step()
        if job is not None:
            job.advance()
        took.append(time.perf_counter() - began_s)
    return took


def _result(
    trials: int, ratios: list[float], plain: list[float], saved: list[float], tokens: int
) -> Result:
    rng = random.Random(1)
    medians = sorted(
        statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES)
    )
    costs = tuple(100 * (each - 1) for each in ratios)
    return Result(
        name="snapshot_cost",
        title=f"Checkpoints: {STATE_MIB} MiB every {EVERY_STEPS} steps",
        command=f"python -m tests.benchmarks.snapshot_cost --trials {trials}",
        method=(
            (
                f"A transformer with AdamW, {tokens} tokens a step, torch's own number of threads. "
                f"Blocks of {BLOCK} steps with `--checkpoint-every {EVERY_STEPS}steps`, copied "
                "beside the step, and without; the sums of each pair are compared, so what the "
                "keeper takes from the trainer's cores while it uploads is in it. Where an upload "
                "is not over when the next snapshot is due, that one is left out, as in a job."
            ),
            (
                f"The interval is from {RESAMPLES} bootstrap samples of pairs. The first {WARM_UP} "
                "pairs do not count."
            ),
        ),
        series=(
            Series(name="step without snapshots", values=tuple(1e3 * s for s in plain), unit="ms"),
            Series(name="step with snapshots", values=tuple(1e3 * s for s in saved), unit="ms"),
            Series(name="cost, of a pair of blocks", values=costs, unit="%"),
        ),
        figures=(
            Figure(name="cost in all, p50", value=percentile(costs, 0.5), unit="%", target=2.0),
            Figure(name="95 % interval, low", value=100 * (medians[RESAMPLES // 40] - 1), unit="%"),
            Figure(
                name="95 % interval, high", value=100 * (medians[-RESAMPLES // 40] - 1), unit="%"
            ),
        ),
    )


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)
