"""Nodes that step together and tell each other of their waits, without a process or a clock."""

import random
from collections import deque
from collections.abc import Callable
from statistics import median

from elasticd.goodput.late import LateJudgement, judged
from elasticd.goodput.wait_report import WaitReport
from elasticd.records.account.late import NodeWait
from elasticd.records.ids import Generation, NodeId

BEAT_S = 0.2
STEP_S = 0.05
WINDOW = 50

Compute = Callable[[int, int], float]
"""Seconds that a step (first) takes on a node (second) until its last collective begins."""


class Scene:
    def __init__(self, nodes: int, compute: Compute, seed: int = 0) -> None:
        self.names = [NodeId(f"n{number}") for number in range(nodes)]
        self.named: list[tuple[int, NodeId]] = []
        """Each node that was found late, and at which step."""
        self.judgement = LateJudgement()
        self.writes = 0
        self.step, self.now_s = 0, 1000.0
        self._compute, self._random = compute, random.Random(seed)
        self._waits: dict[NodeId, deque[float]] = {n: deque(maxlen=WINDOW) for n in self.names}
        self._lengths: deque[float] = deque(maxlen=WINDOW)
        self._reports = {name: WaitReport() for name in self.names}
        self._told: dict[NodeId, NodeWait | None] = dict.fromkeys(self.names)
        self._beat_s = {name: 0.03 * index for index, name in enumerate(self.names)}

    def run(self, steps: int) -> None:
        for _ in range(steps):
            own_s = [self._compute(self.step, index) for index in range(len(self.names))]
            sent_s = [0.03 * STEP_S * self._random.lognormvariate(0, 0.3) for _ in self.names]
            for index, name in enumerate(self.names):
                self._waits[name].append(max(own_s) - own_s[index] + sent_s[index])
            self._lengths.append(max(own_s) + max(sent_s))
            self.now_s += self._lengths[-1]
            self.step += 1
            for name in self.names:
                self._beat(name)
            if self.judgement.wake_s is not None and self.now_s >= self.judgement.wake_s:
                self._judge()

    def _beat(self, name: NodeId) -> None:
        if self.now_s < self._beat_s[name]:
            return
        self._beat_s[name] = self.now_s + BEAT_S
        waits, count = sorted(self._waits[name]), len(self._waits[name])
        wait = NodeWait(
            generation=Generation(1),
            steps=count,
            step_s=median(self._lengths),
            wait_s=median(waits),
            low_s=waits[count // 3],
            high_s=waits[count - 1 - count // 3],
        )
        due = self._reports[name].due(wait, len(self.names), self.now_s)
        if due is not None:
            self._told[name] = due
            self.writes += 1
            self._judge()

    def _judge(self) -> None:
        before = self.judgement.late.keys()
        self.judgement = judged(self.judgement, self._told, self.now_s)
        self.named += [(self.step, node) for node in self.judgement.late.keys() - before]


def quiet(seed: int, *, slow: int = -1, since: int = 0, until: int = 10**9) -> Compute:
    """Steps that differ by two in a hundred; one node may be slower by 30 % for a time."""
    source = random.Random(seed)

    def compute(step: int, node: int) -> float:
        factor = 1.3 if node == slow and since <= step < until else 1.0
        return factor * STEP_S * source.lognormvariate(0, 0.02)

    return compute


def heavy_tailed(seed: int) -> Compute:
    """One step in 30 takes twice as long, or ten times: the system, the disk, the collector."""
    source = random.Random(seed)

    def compute(step: int, node: int) -> float:
        seconds = STEP_S * source.lognormvariate(0, 0.1)
        return seconds + (STEP_S * source.paretovariate(1.2) if source.random() < 0.03 else 0.0)

    return compute


def loaded(seed: int, nodes: int) -> Compute:
    """Others use the cores as well: each node is slower by some 20 %, for a dozen steps or two."""
    source = random.Random(seed)
    load = [0.0] * nodes

    def compute(step: int, node: int) -> float:
        load[node] = 0.9 * load[node] + source.gauss(0, 0.08)
        seconds = STEP_S * (1 + abs(load[node])) * source.lognormvariate(0, 0.1)
        return seconds + (STEP_S * source.expovariate(1) if source.random() < 0.05 else 0.0)

    return compute
