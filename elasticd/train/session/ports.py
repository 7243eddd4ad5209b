"""The ports between a session and the parts of a worker that do the training."""

from collections.abc import Callable, Iterator
from typing import Protocol

from elasticd.channel.worker import Enter, Finished, Formed, FromWorker, ToWorker
from elasticd.records.ids import NodeId
from elasticd.train.session.final_save import FinalSave
from elasticd.train.session.step_session import DeviceMark, EpochProgress, StepSession

__all__ = [
    "AbortableGroup",
    "AgentPort",
    "CollectiveCount",
    "ObservedState",
    "Session",
    "WorldReports",
    "WorldSource",
]


class CollectiveCount(Protocol):
    """The number of collectives that a rank has begun in its group; any thread may read it."""

    def sequence(self) -> int:
        """Return how many collectives this rank has begun."""

    def arrived(self) -> int:
        """Return how many collectives the device has come to."""

    def is_in_collective(self) -> bool:
        """Return whether one that this rank has begun has no result yet; False if not known."""


class AbortableGroup(CollectiveCount, Protocol):
    """The methods of a generation's group that a session needs."""

    def abort(self) -> None:
        """End the group, and all collectives that wait in it; any thread may call this."""

    def synchronize(self, is_current: Callable[[], bool], mark: DeviceMark | None = None) -> bool:
        """Wait for this step's collectives, up to `mark`; return whether a peer is gone."""

    def has_all_results(self) -> bool:
        """Return whether all collectives that were begun gave their whole results."""

    def last_step(self, least: int, is_over: Callable[[], bool]) -> int | None:
        """Return the step after which all ranks leave; `departure.agree` says how."""


class ObservedState(Protocol):
    """The parts of the state that a session reads, also from a thread that does not change it."""

    @property
    def is_dirty(self) -> bool: ...
    @property
    def epoch_progress(self) -> EpochProgress: ...
    def scalars(self) -> dict[str, float]: ...


class WorldSource(Protocol):
    """Says which world this process is to be in, and when that is over."""

    def attach(self, observed: ObservedState, pid: int) -> None:
        """Say that this process is prepared, and begin to listen."""

    def next_world(self) -> Enter | None:
        """Wait for the world to be in; return None if there is none any more."""

    def use(self, group: AbortableGroup | None) -> None:
        """Abort this group from now on when its generation is over; None: there is no group."""

    def is_stale(self, generation: int) -> bool:
        """Return whether the generation is already over for this rank."""

    def has_newer(self, generation: int) -> bool:
        """Return whether another world is wanted, due or not."""

    def wait_newer(self, generation: int, timeout_s: float) -> bool:
        """Wait until another world is wanted; return False if none was by then."""


class WorldReports(Protocol):
    """The port for the reports of how a world ended."""

    def formed(self, formed: Formed, note: str = "") -> None:
        """Report that `train` is called next; `note` says where the state is from."""

    def broken(self, why: str, unreachable: tuple[NodeId, ...] = ()) -> None:
        """Report that the group does not work, and that no agent has said why."""

    def finished(self, finished: Finished) -> None:
        """Report that all ranks have returned from `train`."""


class Session(StepSession, WorldSource, WorldReports, Protocol):
    """The port that `run` needs: a source of worlds, and a receiver of reports on them."""

    on_commit: Callable[[int], None] | None
    """Called with the step at the end of each commit."""
    has_returned: bool
    """True from when `train` has returned, while the other ranks are waited for."""

    @property
    def has_left_as_agreed(self) -> bool:
        """Return True if all ranks leave this generation after the step that this one applied
        last.
        """

    @property
    def final_save(self) -> FinalSave | None:
        """Return the save at the job's end, if this generation is left for the end; else None."""

    def call(self, function: Callable[[], object]) -> None:
        """Call the function that trains; it may be interrupted at each leave point."""

    def close(self) -> None:
        """End the threads and the connection."""


class AgentPort(Protocol):
    """The connection to the agent; `AgentLink` outside of tests."""

    def send(self, message: FromWorker, *, is_news: bool = False) -> None: ...
    def messages(self) -> Iterator[ToWorker]: ...
    def close(self) -> None: ...
