"""What observation adds to a step, as one pair: steps with it and steps without it, in turns.

Observation is what a step does only so that somebody sees it: the clocks around collectives and the
sum of their waits, the clock around the wait for a batch, and the question whether event files are
written. What the script gives to `commit` is in both. Steps without it run the shipped code but for
those lines, which are left out here by their text: one that is there no more ends this benchmark.
"""

import inspect
import random
import textwrap
import time
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from elasticd.train.data.loader import Loader, loader_core_of
from elasticd.train.data.loader_core import LoaderCore
from elasticd.train.introspection.collective_wait import step_wait
from elasticd.train.scalars.commit_scalars import CommitScalars
from elasticd.train.session.agent_session import AgentSession
from elasticd.train.state.state import core_of

__all__ = [
    "METHOD",
    "SilentGroup",
    "look_at_collectives",
    "observe",
    "sums",
    "turns",
]

BUCKETS = 2
"""Of DistributedDataParallel, and one broadcast of the buffers."""
METHOD = (
    "Observation: a step with it and one without it in turns, in an order that is drawn: a batch "
    f"of the Loader, the clocks of {BUCKETS} buckets and of one broadcast (nothing is sent), the "
    "optimizer's hooks, the commit. Without it: the shipped code but for the lines of observation. "
    "The median of what the two steps of a turn differ by."
)

_now_s = time.monotonic


def without(method: Callable[..., Any], *parts: str) -> Any:
    """Return a method of the shipped code that lacks these lines.

    Raises: LookupError: one of them is not there, or more than once.
    """
    assert isinstance(method, FunctionType)
    source = textwrap.dedent(inspect.getsource(method))
    for part in parts:
        if source.count(part) != 1:
            raise LookupError(f"{method.__qualname__} does not have this line once: {part!r}")
        source = source.replace(part, "pass")
    made: dict[str, Any] = {}
    code = compile(source, inspect.getfile(method), "exec", dont_inherit=True)
    exec(code, method.__globals__, made)
    return made[method.__name__]


class BareSession(AgentSession):
    """A session that sums up no waits."""

    committed = without(
        AgentSession.committed,
        "step_wait.taken_s, step_wait.total_s = 0.0, step_wait.blocked_s",
        "step_wait.ends.append((step_wait.blocked_s, self.committed_at_s))",
    )
    synchronize = without(AgentSession.synchronize, "step_wait.waited_for_future()")


class BareLoaderCore(LoaderCore):
    """A loader that does not look at the clock."""

    next = without(
        LoaderCore.next, "asked_s = monotonic()", "self._spent.data_s += monotonic() - asked_s"
    )


class BareScalars(CommitScalars):
    """Numbers of commits that no event files can have."""

    set = without(
        CommitScalars.set,
        "if self.feed is not None and (given or histograms):\n"
        "        self.feed.commit(step, given, histograms or {})",
    )


def observe(session: AgentSession, data: Loader, state: Any, *, is_on: bool) -> None:
    """Let the next steps be observed, or not; the objects stay the same ones."""
    session.__class__ = AgentSession if is_on else BareSession
    loader_core_of(data).__class__ = LoaderCore if is_on else BareLoaderCore
    core_of(state).commit_scalars.__class__ = CommitScalars if is_on else BareScalars


def sums(session: AgentSession) -> tuple[float, float]:
    """Return what observation has added up: each step that is observed changes it."""
    return session.spent.data_s, step_wait.total_s


class SilentGroup:
    """A group that has nothing to wait for; who uses it counts the collectives that begin."""

    def __init__(self) -> None:
        self.begun = 0

    def synchronize(self, is_current: Callable[[], bool], mark: object = None) -> bool:
        return False

    def abort(self) -> None:
        pass

    def sequence(self) -> int:
        return self.begun

    def arrived(self) -> int:
        return 0

    def is_in_collective(self) -> bool:
        return False

    def has_all_results(self) -> bool:
        return True

    def last_step(self, least: int, is_over: Callable[[], bool]) -> int | None:
        return None


def look_at_collectives() -> None:
    """Look at the clock as often as `process_group.ddp_group` does in a step."""
    step_wait.begin_collective()
    began_s = _now_s()
    step_wait.waited(began_s)
    for _ in range(BUCKETS):
        step_wait.taken_s = _now_s()


def turns(
    steps: Sequence[Callable[[], float]], count: int, seed: int = 1
) -> tuple[tuple[float, ...], ...]:
    """Call all of them in each turn, in an order that is drawn; return what each of them said."""
    draw, found = random.Random(seed), [[0.0] * count for _ in steps]
    order = list(range(len(steps)))
    for turn in range(count):
        draw.shuffle(order)
        for index in order:
            found[index][turn] = steps[index]()
    return tuple(tuple(each) for each in found)
