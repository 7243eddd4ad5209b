"""The simulated job: it trains, loses time at changes, and is measured like a real job.

The shipped `Measuring` measures it, on whole steps as in the progress record.
"""

from random import Random

from elasticd.autoscale.curve.window import Measuring, ProgressReading, measured
from elasticd.autoscale.evaluation_input import MeasuredWindow
from elasticd.autoscale.simulator.scenario import JobScenario
from elasticd.records.ids import Generation

__all__ = ["SimulatedJob"]


class SimulatedJob:
    """One job that runs through a scenario."""

    def __init__(self, scenario: JobScenario, window_s: float) -> None:
        self._scenario = scenario
        self._window_s = window_s
        self._random = Random(scenario.seed)  # noqa: S311 (a simulation)
        self._busy_until_s = 0.0
        self._changed_s = 0.0
        self._paused_s = 0.0
        self._costs: list[float] = []
        self._windows: list[MeasuredWindow] = []
        self.measuring = Measuring()
        self.now_s = 0.0
        self.steps = 0.0
        self.node_s = 0.0
        self.rate = 0.0
        self.data_share = 0.0
        self.generation = Generation(0)
        self.nodes = 0
        self.wanted = scenario.first_nodes or scenario.max_nodes
        self.follow()

    @property
    def available(self) -> int:
        """Return the number of nodes that train or could train."""
        return self._scenario.available_at(self.now_s)

    def follow(self) -> None:
        """Form the world that the want and the nodes allow, if it is not the present world."""
        nodes = min(self.wanted, self.available, self._scenario.max_nodes)
        nodes = nodes if nodes >= self._scenario.min_nodes else 0
        if nodes == self.nodes:
            return
        cost_s = self._scenario.change_cost_s if self.nodes > 0 else 0.0
        if cost_s > 0.0 and nodes > 0:
            self._costs.append(cost_s * self._random.uniform(0.8, 1.2))
        self.nodes = nodes
        self.generation = Generation(self.generation + 1)
        self._changed_s = self.now_s
        self._paused_s = 0.0
        self._busy_until_s = self.now_s + cost_s

    def advance(self, until_s: float) -> None:
        """Train until that time of the simulation, in seconds."""
        shape, every_s = self._scenario.shape_at(self.now_s), until_s - self.now_s
        trains_s = max(0.0, until_s - max(self.now_s, self._busy_until_s))
        if self._scenario.is_paused_at(self.now_s):
            self._paused_s += trains_s
            trains_s = 0.0
        noise = max(0.1, self._random.gauss(1.0, self._scenario.noise_share))
        if self._random.random() < self._scenario.stall_share:
            noise *= 0.5
        able, data_rate = shape.rate(self.nodes) * noise, self._scenario.data_rate_at(self.now_s)
        self.data_share = max(0.0, 1.0 - data_rate / able) if able > 0.0 else 0.0
        made = trains_s * min(able, data_rate)
        self.steps += made
        self.rate = made / every_s
        self.node_s += self.nodes * every_s
        self.now_s = until_s
        self._measure()
        self.follow()

    def take(self) -> tuple[tuple[MeasuredWindow, ...], tuple[float, ...]]:
        """Return the windows and the costs of changes since the last call."""
        found = tuple(self._windows), tuple(self._costs)
        self._windows, self._costs = [], []
        return found

    def _measure(self) -> None:
        if self.nodes == 0:
            return
        reading = ProgressReading(
            generation=self.generation,
            generation_s=self.now_s - self._changed_s,
            step=int(self.steps),
            nodes=self.nodes,
            without_steps_s=self._paused_s,
        )
        self.measuring, window = measured(self.measuring, reading, window_s=self._window_s)
        if window is not None:
            self._windows.append(window)
