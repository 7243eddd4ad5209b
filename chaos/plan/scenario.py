"""A scenario: the machines, the job, the faults, and what must hold; read from TOML.

Every wrong entry is refused with one sentence that names it: a key that is silently ignored would
make a scenario test less than it says.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from chaos.error import WrongInput
from chaos.plan.fault import TRAITS, After, Kind, Place, Point, Scope

__all__ = [
    "Entry",
    "JobPlan",
    "Random",
    "Scenario",
    "SitePlan",
    "Verdict",
    "load",
    "parse",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlan:
    """The machines."""

    place: Place = Place.PROCESSES
    nodes: int = 2
    workers: int = 2
    """Slots of each node."""
    etcds: int = 1
    """Members of etcd: 1 or 3."""
    has_network: bool = False
    """Each node in a network namespace of its own; needs root."""
    version_before: str = ""
    """A commit of this repository: the version to which `agent-other-version` rolls the agents."""
    lease_ttl_s: float = 2.0
    """The TTL of the nodes' leases; for pods it is the one with which their agents were started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The training run."""

    script: str = "ledger_job.py"
    """The name of the script in chaos/jobs."""
    min_nodes: int = 1
    step_sleep_s: float = 0.03
    """A step that waits rather than computes, so that a start-up does not slow the survivors."""
    samples: int = 242
    """The default leaves a tail of two: fewer than there are workers."""
    batch_size: int = 24
    max_restarts: int = 100
    max_node_losses: int = -1
    progress_timeout_s: float = 0.0
    """0: the default of elasticd."""
    isolation_limit_s: float = 60.0
    poison_at_step: int = 0
    """Every rank raises at this step; 0: none does."""
    checkpoint_every: str = ""
    """The value of --checkpoint-every; empty: nothing is saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Faults of one kind, one after the other; what is not said is drawn from the seed."""

    kind: Kind
    times: int = 1
    node: int = -1
    worker: int = -1
    point: Point = Point.ANYWHERE
    after: After = After.STEADY
    wait_s: float = -1.0
    """Less than 0: drawn, up to half a second; for an overlap 20 to 100 ms."""
    for_s: float = -1.0
    amount_s: float = 0.2
    recover_s: float = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Random:
    """A schedule drawn from the seed."""

    quota: Mapping[str, int] = field(default_factory=dict)
    """How many of each kind."""
    overlap_share: float = 0.0
    """How many of them come while the one before is not over yet."""
    every_s: float = 0.0
    """Above 0: one each so many seconds, whatever came of the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What must hold, beyond the invariants that always must."""

    end: str = "succeeded"
    least_changes: int = 0
    """Generations after the first: fewer would mean that the faults hit nothing."""
    most_changes: int = -1
    most_lost_steps_per_fault: int = 1
    """Steps done again; lost is at most the step in flight."""
    most_steps_back: int = 0
    """Committed steps that one change of world may take back; 0: none. It is for a state of which
    no rank has a copy, so that a failure goes back to a snapshot. Steps that a rank alone had
    applied count too."""
    least_goodput: float = 0.0
    full_s: float = 60.0
    """The most time from a fault's undoing to a commit at full size."""
    outlive_s: float = 3.0
    """How long a worker may run on after its agent."""
    may_start_over: bool = False
    """All copies of the state may die at once; there are no checkpoints yet."""
    account_within: float = 0.01
    """What elasticd's account of the time may differ from the history, as a share of the run's
    time, or else 50 ms a change; 0: it is told and not judged."""
    named_share: float = 0.98
    """The least share of the faults whose cause and culprit `elasticd why` must name right."""
    named_within_s: float = 2.0
    """The most time from the first commit of the fault's generation until `why` names the fault."""
    most_unexplained: float = 0.01
    """Share of the slots' time for which the account has no cause."""
    parity: float = 1e-9
    """Relative difference of losses at equal steps; 0: not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    about: str = ""
    site: SitePlan = field(default_factory=SitePlan)
    job: JobPlan = field(default_factory=JobPlan)
    faults: tuple[Entry, ...] = ()
    random: Random = field(default_factory=Random)
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def full_size(self) -> int:
        return self.site.nodes * self.site.workers


def load(path: Path) -> Scenario:
    """Read a scenario.

    Raises:
        WrongInput: says what is wrong with it, or with the path.
    """
    try:
        text = path.read_text()
    except OSError as exc:
        raise WrongInput(
            f"The scenario {path} cannot be read ({exc.strerror}): give a file of chaos/scenarios."
        ) from exc
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise WrongInput(f"{path} is not TOML: {exc}.") from exc
    return parse(table, name=path.stem)


def parse(table: Mapping[str, Any], *, name: str) -> Scenario:
    """Check what TOML gave and freeze it.

    Raises: WrongInput: a key or a value is none that a scenario may have.
    """
    known = {"about", "site", "job", "fault", "random", "verdict"}
    for key in table:
        if key not in known:
            raise WrongInput(f"{name}: there is no `{key}`: known are {_listed(known)}.")
    entries = table.get("fault", [])
    if not isinstance(entries, list):
        raise WrongInput(f"{name}: faults are written as [[fault]], with two brackets.")
    scenario = Scenario(
        name=name,
        about=str(table.get("about", "")),
        site=_read(SitePlan, table.get("site", {}), f"{name}: [site]"),
        job=_read(JobPlan, table.get("job", {}), f"{name}: [job]"),
        faults=tuple(
            _read(Entry, entry, f"{name}: [[fault]] number {number}")
            for number, entry in enumerate(entries, start=1)
        ),
        random=_read(Random, table.get("random", {}), f"{name}: [random]"),
        verdict=_read(Verdict, table.get("verdict", {}), f"{name}: [verdict]"),
    )
    _check(scenario)
    return scenario


def _read(kind: type[T], table: object, where: str) -> T:
    """Build a dataclass of a table; each value must be of the field's type."""
    if not isinstance(table, Mapping):
        raise WrongInput(f"{where} is not a table of keys and values.")
    hints = get_type_hints(kind)
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise WrongInput(f"{where} has no `{key}`: known are {_listed(known)}.")
        values[key] = _value(hints[key], value, f"{where} {key} = {value!r}")
    if kind is Entry and "kind" not in values:
        raise WrongInput(f"{where} has no `kind`: one of {_listed(set(Kind))}.")
    return kind(**values)


def _value(hint: Any, value: Any, where: str) -> Any:
    if hint in (Kind, Point, After, Place):
        try:
            return hint(value)
        except ValueError:
            raise WrongInput(f"{where} is none of {_listed(set(hint))}.") from None
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (int, float, str, bool):
        if type(value) is not hint:
            raise WrongInput(f"{where} is not of type {hint.__name__}.")
        return value
    # The quota: kinds and numbers.
    if not isinstance(value, Mapping):
        raise WrongInput(f"{where} is not a table of kinds and numbers.")
    for kind, count in value.items():
        if kind not in set(Kind):
            raise WrongInput(f"{where}: {kind} is none of {_listed(set(Kind))}.")
        if type(count) is not int or count < 0:
            raise WrongInput(f"{where}: {kind} = {count!r} is not a number of faults.")
    return dict(value)


def _check(scenario: Scenario) -> None:
    """Refuse what each table allows alone but what makes no sense together."""
    name, site, job = scenario.name, scenario.site, scenario.job
    if site.nodes < 1 or site.workers < 1:
        raise WrongInput(f"{name}: nodes and workers must be above 0.")
    if site.etcds not in (1, 3):
        raise WrongInput(f"{name}: etcds = {site.etcds} is neither 1 nor 3.")
    if site.place is Place.PODS:
        if site.has_network or site.etcds != 1 or job.checkpoint_every or job.poison_at_step:
            raise WrongInput(
                f"{name}: has_network, etcds, checkpoint_every and poison_at_step are for "
                f'place = "{Place.PROCESSES}".'
            )
        if job.script != JobPlan().script:
            raise WrongInput(f"{name}: script = {job.script!r} cannot run in pods.")
    if not 1 <= job.min_nodes <= site.nodes:
        raise WrongInput(f"{name}: min_nodes = {job.min_nodes} is not from 1 to {site.nodes}.")
    if scenario.verdict.end not in ("succeeded", "failed"):
        raise WrongInput(f"{name}: end = {scenario.verdict.end!r} is not `succeeded` or `failed`.")
    if scenario.random.quota and scenario.faults:
        raise WrongInput(f"{name}: give either [[fault]] or [random], not both.")
    if not 0 <= scenario.random.overlap_share <= 1:
        raise WrongInput(f"{name}: overlap_share must be between 0 and 1.")
    for kind in {*(entry.kind for entry in scenario.faults), *map(Kind, scenario.random.quota)}:
        traits = TRAITS[kind]
        if site.place not in traits.places:
            (place,) = traits.places
            raise WrongInput(f'{name}: {kind} needs place = "{place}" in [site].')
        is_ours = site.place is Place.PROCESSES
        if traits.has_network and is_ours and not site.has_network:
            raise WrongInput(f"{name}: {kind} needs has_network = true in [site].")
        if traits.least_etcds > site.etcds:
            raise WrongInput(f"{name}: {kind} needs etcds = {traits.least_etcds} in [site].")
        if kind is Kind.AGENT_OTHER_VERSION and not site.version_before:
            raise WrongInput(f"{name}: {kind} needs version_before in [site].")
        if traits.scope is Scope.JOB and job.min_nodes >= site.nodes:
            raise WrongInput(f"{name}: {kind} needs min_nodes below nodes in [job].")
    for entry in scenario.faults:
        if entry.times < 1:
            raise WrongInput(f"{name}: {entry.kind} times = {entry.times} is not above 0.")
        if entry.node >= site.nodes or entry.worker >= site.workers:
            raise WrongInput(
                f"{name}: {entry.kind} names node {entry.node} worker {entry.worker}, but there "
                f"are {site.nodes} nodes with {site.workers} workers, counted from 0."
            )
    if scenario.faults and scenario.faults[0].after is After.PREVIOUS:
        raise WrongInput(f"{name}: the first fault has no previous one to come after.")


def _listed(words: "set[str] | set[Kind] | set[Any]") -> str:
    return ", ".join(sorted(str(word) or '""' for word in words))
