"""The simulated jobs of the guide, one or two for each rule, each with its policy."""

import math
from dataclasses import dataclass

from elasticd.autoscale.gallery.trace_picture import trace_picture
from elasticd.autoscale.policy_file.parser import parsed
from elasticd.autoscale.simulator.run import Autoscaler, simulate
from elasticd.autoscale.simulator.scenario import (
    DataRate,
    FaultKind,
    JobCurve,
    JobScenario,
    NodeCount,
    SimulatedFault,
)
from elasticd.autoscale.simulator.shape import Shape
from elasticd.autoscale.simulator.trace import Trace

__all__ = ["SCENES", "Scene"]

BEGAN_UNIX_S = 1.0
"""The time of the simulation's wall clock at its beginning."""
SATURATES = Shape(a=0.1, b=1.2, c=0.01)
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One picture of the guide."""

    name: str
    """The name of the picture's file, without the ending."""
    title: str
    policy: str
    """The policy as TOML."""
    scenario: JobScenario
    marks: tuple[tuple[float, str], ...] = ()

    def trace(self) -> Trace:
        """Run the shipped rules over the simulated job."""
        policy = parsed(self.policy, file=f"{self.name}.toml", now_unix_s=BEGAN_UNIX_S)
        return simulate(self.scenario, Autoscaler(policy))

    def picture(self) -> str:
        """Return the SVG of the scene."""
        return trace_picture(self.trace(), title=self.title, marks=self.marks)


def _scenario(
    name: str,
    *curves: tuple[float, Shape],
    nodes: tuple[tuple[float, int], ...] = ((0.0, 16),),
    duration_s: float = 1.5 * HOUR_S,
    first_nodes: int = 2,
    faults: tuple[SimulatedFault, ...] = (),
    data_rates: tuple[DataRate, ...] = (),
) -> JobScenario:
    return JobScenario(
        name=name,
        curves=tuple(JobCurve(from_s=from_s, shape=shape) for from_s, shape in curves),
        nodes=tuple(NodeCount(from_s=from_s, available=count) for from_s, count in nodes),
        duration_s=duration_s,
        first_nodes=first_nodes,
        faults=faults,
        data_rates=data_rates,
    )


TARGET = """
[target]
[target.scale_down]
stabilization = "3m"
[[target.metrics]]
name = "throughput"
query = 'sum(rate(elasticd_steps_total{job_name="$job"}[$window]))'
supply = 2.5
"""

SCENES = (
    Scene(
        name="target",
        title="target: at least 2.5 steps a second; after 45 minutes steps take twice as long",
        policy=TARGET,
        scenario=_scenario("target", (0.0, Shape(b=0.8)), (2700.0, Shape(b=1.6))),
        marks=((2700.0, "steps take twice as long"),),
    ),
    Scene(
        name="outage",
        title="target: Prometheus is away for ten minutes, and the leader is killed",
        policy=TARGET,
        scenario=_scenario(
            "outage",
            (0.0, Shape(b=1.6)),
            (1600.0, Shape(b=0.8)),
            duration_s=HOUR_S,
            faults=(
                SimulatedFault(kind=FaultKind.LOW_AFTER, from_s=1200.0, until_s=1800.0),
                SimulatedFault(kind=FaultKind.LEADER_KILLED, from_s=600.0, until_s=601.0),
            ),
        ),
        marks=(
            (600.0, "leader killed"),
            (1200.0, "Prometheus away"),
            (1600.0, "steps take half as long"),
            (1800.0, "back, with too low averages"),
        ),
    ),
    Scene(
        name="goodput",
        title="goodput: a job that scales ever less settles where the last node is worth half",
        policy="[goodput]\n",
        scenario=_scenario("goodput", (0.0, SATURATES), duration_s=0.5 * HOUR_S),
    ),
    Scene(
        name="cliff",
        title="goodput: the fifth node is in another rack; what was promised did not come",
        policy="[goodput]\n",
        scenario=_scenario(
            "cliff",
            (0.0, Shape(b=1.2, cliff_nodes=4, cliff_factor=2.4)),
            duration_s=0.5 * HOUR_S,
        ),
    ),
    Scene(
        name="deadline",
        title="deadline: 20,000 steps in two hours on as few nodes as can; for a while 3 are there",
        policy='[deadline]\nsteps = 20_000\nwithin = "2h"\n',
        scenario=_scenario(
            "deadline",
            (0.0, SATURATES),
            nodes=((0.0, 16), (3000.0, 3), (4200.0, 16)),
            duration_s=2.0 * HOUR_S,
            first_nodes=1,
        ),
        marks=((3000.0, "3 nodes are there"), (4200.0, "16 again")),
    ),
    Scene(
        name="budget",
        title="budget: as fast as is worth it, for no more than 6 node-hours for 12,000 steps",
        policy="[goodput]\n[budget]\nsteps = 12_000\nnode_hours = 6\n",
        scenario=_scenario("budget", (0.0, SATURATES), duration_s=1.5 * HOUR_S, first_nodes=1),
    ),
    Scene(
        name="idle",
        title="idle: while no data come for ten minutes, the job keeps its MIN alone",
        policy="[goodput]\n[idle]\nafter = '1m'\n",
        scenario=_scenario(
            "idle",
            (0.0, SATURATES),
            duration_s=HOUR_S,
            data_rates=(
                DataRate(from_s=1500.0, steps_per_s=0.02),
                DataRate(from_s=2100.0, steps_per_s=math.inf),
            ),
        ),
        marks=((1500.0, "no data"), (2100.0, "data again")),
    ),
)
