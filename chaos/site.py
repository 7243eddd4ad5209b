"""The port of a site: where a scenario takes place, and by whose hand its faults are brought about.

The runner knows a schedule, a clock and this port. What a node *is*, how a process of it is found
and what stops it stands in `processes` (agents as processes of this machine) and in `pods` (agents
in a Kubernetes cluster). A fault's victim and its deeds come from the site as a `Blow`, so the
runner handles no signal, no pid and no API.

Both kinds of site let the ranks write into one file with one clock: whatever is judged comes from
there, by the same rules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from chaos.history.tail import Tail
from chaos.plan.fault import Fault
from chaos.plan.scenario import Scenario
from chaos.process import Process

__all__ = ["FINAL", "JOB", "Blow", "Deed", "Machines", "Node", "Site", "do_nothing", "spell_script"]

JOB = "chaos"
FINAL = ("succeeded", "failed", "stopped")
JOBS = Path(__file__).with_name("jobs")

Deed = Callable[[], None]


def do_nothing() -> None:
    """Stand for a deed where there is nothing to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """A fault whose victim is known: what to do, and what undoes it."""

    victim: str
    strike: Deed
    undo: Deed | None = None
    """What is done after the fault's `for_s`; None: nothing is to be done."""
    is_undone: Callable[[], bool] = lambda: True
    """Whether `undo` may be done yet."""
    is_restart: bool = False
    """Whether `undo` starts what the fault ended; after the job's end nobody wants that."""
    is_order: bool = False
    """The worker does the deed itself, at its next step, and says so."""
    is_there: Callable[[], bool] = lambda: True
    """Whether the worker that has the order still lives."""
    withdraw: Deed = do_nothing
    """Take the order back, which nobody carried out."""
    node: str = ""
    other_node: str = ""
    struck_pid: int = 0
    """The process id of the worker that is struck; 0: no worker is."""


class Node(Protocol):
    """An agent and all below it, in life after life."""

    name: str
    life: int
    """The number of the agent's life, from 1; 0: it was never started."""
    is_ending: bool
    """Its end is our doing; if it is not, it is a finding."""

    @property
    def exit_code(self) -> int | None:
        """None while its agent runs."""

    def start(self) -> None:
        """Begin its next life."""

    def workers_of(self, life: int) -> tuple[int, ...]:
        """List the workers that are there of one life of its agent."""

    def last_words(self) -> str:
        """Return the last line that its agent wrote."""


class Machines(Protocol):
    """What a scenario's programs run on; `close` leaves nothing of it."""

    @property
    def urls(self) -> Sequence[str]:
        """Return where etcd answers."""

    def start(self) -> None:
        """Start the machines, and submit the job to the daemons.

        Raises:
            ChaosError: something could not be started, or the job was refused; says why.
        """

    def environ(self) -> dict[str, str]:
        """Return the environment for programs that this machine runs for the site."""

    def end(self) -> Sequence[Process]:
        """End what was started, and return what is left nevertheless."""

    def close(self) -> None:
        """Take everything away, however it comes."""


class Site(Machines, Protocol):
    """Everything that a scenario needs: machines, the job on them, and a way to hit each part."""

    folder: Path
    """Where the run's history is kept; its own, and gone after the run."""
    records: Path
    """Where the ranks write, while they run."""
    scenario: Scenario
    job: str
    """The job's name in etcd."""

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes of the scenario, in its order."""

    def aim(self, fault: Fault, tail: Tail) -> Blow | None:
        """Find a fault's victim; None: there is none at this moment."""

    def end_at(self, step: int) -> None:
        """Tell the job's ranks to end after this step."""


def spell_script(scenario: Scenario, folder: Path) -> list[str]:
    """Spell the script with the arguments that the undisturbed run has too."""
    plan = scenario.job
    return [
        str(JOBS / plan.script),
        str(folder),
        *("--samples", str(plan.samples), "--batch-size", str(plan.batch_size)),
    ]
