"""How many steps lie between two snapshots in memory, where the user asks for one every step. Pure.

A snapshot begins only when the one before is whole: held by its node, and by the next node too. So
the interval is at least as many steps as that takes. The interval is longer where steps beside a
copy are slower than others: long enough to keep the loss of time below a limit. Both times are
measured, since nobody knows beforehand what a network, a memory and the cores have left: after each
of the first snapshots follow some steps without one.

The next generation knows from this one what a step takes, so that its first snapshot waits for
memory alone; a new process that is rank 0 there measures the time of a step first. Until the
generation has measured its own snapshots it takes them in half of the interval of this one, which
all ranks know (`follow`): that costs at most twice the limit if a snapshot is as dear as before,
and if a snapshot is cheaper, the ranks soon know.
"""

from collections import deque
from collections.abc import Callable
from math import ceil
from statistics import median

from elasticd.train.save.share_plan import SharePlan

__all__ = ["COST_LIMIT", "IntervalTuner"]

COST_LIMIT = 0.05
"""The part of the training's time that snapshots in memory may cost."""
WARMUP_STEPS = 2
"""The first steps of a generation, which are slower than others."""
USUAL = 5
"""The least number of steps without a snapshot that are known before the first one is taken."""
KEPT = 9
"""How many of the newest measurements count; their median does."""
UNTOUCHED = 4
"""How many snapshots do not count: two forms of copying meet memory that nobody has touched."""
COMPARED = 2
"""How many steps without one follow each of the first snapshots, to compare with."""
LEAST = 5
"""How many snapshots are measured before their cost makes the interval longer."""


class IntervalTuner:
    """The interval of one generation: rank 0 finds the interval, and tells the other ranks."""

    def __init__(
        self,
        earlier: "IntervalTuner | None" = None,
        *,
        interval: int = 1,
        mirror_bytes_per_s: int = 0,
    ) -> None:
        """`earlier` is the tuner of the generation before, if this process was in that generation.
        `interval` is that generation's interval, as its ranks know it.

        `mirror_bytes_per_s` is how much a node may send to the next node in a second; 0: no limit.
        """
        self._mirror_bytes_per_s = mirror_bytes_per_s
        self._copied_bytes = self._sent_bytes = 0
        """What rank 0 copies of a snapshot, and what its node sends of it; 0 until it is known."""
        # By the time at which costs count, steps of this generation have taken the place of these.
        self._usual: deque[float] = deque(earlier._usual if earlier else (), maxlen=KEPT)
        self._assumed = ceil(max(interval, earlier.interval if earlier else 1) / 2)
        self._took: deque[tuple[int, float]] = deque(maxlen=KEPT)
        """Steps and seconds from each snapshot to the step at which it was whole."""
        self._stepped_s: float | None = None
        self._step = -1
        self._steps = self._count = self._said = 0
        self._taken: tuple[int, float] | None = None
        """The step and the time of the snapshot that is not whole yet."""
        self._next_at = 0
        self._is_plan_said = False

    def stepped(self, step: int, now_s: float) -> None:
        """Take note of the end of each step; a second commit of one step is not a step."""
        if step <= self._step:
            return
        self._step = step
        before_s, self._stepped_s = self._stepped_s, now_s
        self._steps += 1
        if before_s is not None and self._taken is None and self._steps > WARMUP_STEPS + 1:
            self._usual.append(now_s - before_s)

    def is_due(self, step: int, *, is_replicated: bool, now_s: float) -> bool:
        """Return whether a snapshot is taken now.

        `is_replicated` says that the nodes hold all of the snapshot before.
        """
        if self._taken is not None and is_replicated:
            at_step, at_s = self._taken
            self._count += 1
            if self._count > UNTOUCHED:
                self._took.append((step - at_step, now_s - at_s))
            self._taken = None
            self._next_at = at_step + self.interval
            if len(self._took) < LEAST:
                self._next_at = max(self._next_at, step + COMPARED)
        if not is_replicated or not self.is_ready or step < self._next_at:
            return False
        self._taken = step, now_s
        return True

    def follow(self, interval: int) -> None:
        """Take note of rank 0's interval, on the other ranks: rank 0 may be lost."""
        self._assumed = interval

    def look_at(self, step: int) -> int:
        """Return the step at which all ranks look again, after this one."""
        return step + 1 if self._taken is not None else max(step + 1, self._next_at)

    @property
    def is_ready(self) -> bool:
        """Return whether enough steps were measured for a snapshot, and memory was requested."""
        return len(self._usual) >= USUAL and self._steps > 1

    @property
    def step_s(self) -> float:
        """Return how long a step takes, in seconds, while nothing is copied."""
        return median(self._usual) if self._usual else 0.0

    @property
    def replication_steps(self) -> int:
        """Return how many steps it takes until all holders of a snapshot have it whole."""
        return ceil(median(steps for steps, _ in self._took)) if self._took else 1

    @property
    def cost_s(self) -> float:
        """Return by how many seconds a snapshot makes the steps beside it longer, all together."""
        usual_s = self.step_s
        return max(0.0, median(took - n * usual_s for n, took in self._took)) if self._took else 0.0

    @property
    def interval(self) -> int:
        """Return how many steps lie between two snapshots."""
        usual_s = self.step_s
        if len(self._took) < LEAST:
            return max(self._assumed, self.sent_steps)
        costs = ceil(self.cost_s / (COST_LIMIT * usual_s))
        return max(1, self.replication_steps, costs, self.sent_steps)

    @property
    def sent_steps(self) -> int:
        """Return in how many steps a node may send its part of a snapshot to the next one."""
        if not self._mirror_bytes_per_s or not self.step_s:
            return 1
        return max(1, ceil(self._sent_bytes / self._mirror_bytes_per_s / self.step_s))

    def use(self, parts: SharePlan, ranks: int) -> None:
        """Take note of a snapshot's size: `parts` are rank 0's, whose node has `ranks` ranks."""
        sizes = [(each.layout.size, each.is_alone) for each in parts.parts]
        self._copied_bytes = sum(size for size, _ in sizes)
        self._sent_bytes = ranks * sum(size for size, is_alone in sizes if is_alone)

    def say(self, say: Callable[[str], object]) -> None:
        """Report news through `say`: first the plan, later the interval that fits."""
        if not self._is_plan_said:
            self._is_plan_said = True
            say(self._plan())
        news = self._news()
        if news:
            say(news)

    def _plan(self) -> str:
        sends = f", and its node sends {self._sent_bytes / 2**20:.0f} MiB to the next one"
        rate = f" ({self._sent_bytes / self.step_s / 1e6:.0f} MB/s)" if self.step_s else ""
        return (
            f"A snapshot of every step is kept in memory: of each, rank 0 copies "
            f"{self._copied_bytes / 2**20:.0f} MiB beside a step of {self.step_s * 1000:.0f} ms"
            f"{sends + rate if self._sent_bytes else ''}.{self._bound()} If that does not fit into "
            f"a step, or costs more than {COST_LIMIT:.0%} of the time, the interval is made longer."
        )

    def _bound(self) -> str:
        """Return the sentence on the bandwidth's limit; empty if it allows every step."""
        if self.sent_steps == 1:
            return ""
        took_s = self._sent_bytes / self._mirror_bytes_per_s
        return (
            f" With --mirror-bandwidth {self._mirror_bytes_per_s / 1e6:.0f} MB/s that takes "
            f"{took_s:.1f} s, so none is taken sooner than after {self.sent_steps} steps."
        )

    def _news(self) -> str:
        """Return the interval as a sentence if a person should learn it now; else an empty text."""
        interval = self.interval
        is_other = not self._said or interval >= 2 * self._said or 2 * interval <= self._said
        if len(self._took) < LEAST or not is_other:
            return ""
        self._said = interval
        whole = f"{self.replication_steps} step{'s' if self.replication_steps > 1 else ''}"
        cost_ms, share = self.cost_s * 1000, self.cost_s / (interval * self.step_s)
        measured = (
            f"a snapshot is whole within {whole} of {self.step_s * 1000:.0f} ms and costs "
            f"{cost_ms:.0f} ms"
        )
        if interval == 1:
            return f"A snapshot of every step fits: {measured}, {share:.1%} of the time."
        is_bound = interval == self.sent_steps
        return (
            f"A snapshot of every step does not fit: {measured}. So one is taken every {interval} "
            f"steps{', as many as --mirror-bandwidth asks for' if is_bound else ''}, which costs "
            f"{share:.1%} of the time."
        )
