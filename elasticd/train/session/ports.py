"""The narrow doors between a session and the parts of a worker that do the training."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from elasticd.channel.worker import Enter, Finished, Formed, FromWorker, ToWorker
from elasticd.records.ids import NodeId
from elasticd.train.introspection.time_spent import Spent
from elasticd.train.session.final_save import Parting

__all__ = ["Breakable", "EpochProgress", "Observed", "Session", "Watch", "Wire"]


class Watch(Protocol):
    """What a state, its optimizers and its loaders tell, and where they may be interrupted."""

    generation: int

    def check(self, step: int) -> None:
        """Raise Interrupted if a newer world is wanted of a rank that applied so many steps."""

    def committed(self, position: tuple[int, int]) -> None:
        """Take note of a commit: (steps, epochs) so far. The state is clean."""

    def settle(self) -> None:
        """Return once all that this step's optimizers will read is known good; else raise."""

    def pause(self, why: str | None) -> None:
        """Begin a time without steps, or end it (None)."""

    def delivered(self) -> None:
        """Count a batch that the script gets now."""

    def sequence(self) -> int | None:
        """Return how many collectives this rank has begun; None: nobody counts them."""


class Breakable(Protocol):
    """What a session needs of a generation's group."""

    def abort(self) -> None: ...
    def sequence(self) -> int: ...
    def arrived(self) -> int: ...
    def settle(self, is_current: Callable[[], bool]) -> None: ...
    def has_ended(self) -> bool: ...
    def last_step(self, least: int, is_over: Callable[[], bool]) -> int | None: ...


class EpochProgress(NamedTuple):
    """How far an epoch is, and how many there are to be; 0 where that is not known."""

    consumed: int = 0
    """Samples of this epoch in applied steps, of all ranks."""
    epoch_samples: int = 0
    epochs: int = 0
    """What `state.epochs` was asked for."""
    samples: int = 0
    """In applied steps of the whole run, of all ranks."""


class Observed(Protocol):
    """What a session reads of the state, also from another thread than the one that changes it."""

    @property
    def _is_dirty(self) -> bool: ...
    @property
    def _epoch_progress(self) -> EpochProgress: ...
    def _scalars(self) -> dict[str, float]: ...


class Session(Watch, Protocol):
    """What `run` needs: a source of worlds, which is told what became of them."""

    on_commit: Callable[[int], None] | None
    """Called with the step at the end of each commit."""

    @property
    def has_left_as_agreed(self) -> bool:
        """All ranks leave this generation after the very step that this one applied last."""

    @property
    def parting(self) -> Parting | None:
        """The end of the job, where that is what this generation is left for."""

    spent: Spent
    """What loaders and copies take of the steps; they add to it themselves."""
    has_returned: bool
    """`train` returned, and the other ranks are waited for."""

    def attach(self, observed: Observed, pid: int) -> None: ...
    def next_world(self) -> Enter | None: ...
    def use(self, group: Breakable | None) -> None: ...
    def call(self, function: Callable[[], object]) -> None: ...
    def is_stale(self, generation: int) -> bool: ...
    def has_newer(self, generation: int) -> bool: ...
    def wait_newer(self, generation: int, timeout_s: float) -> bool: ...
    def formed(self, formed: Formed, note: str = "") -> None: ...
    def broken(self, why: str, unreachable: tuple[NodeId, ...] = ()) -> None: ...
    def finished(self, finished: Finished) -> None: ...
    def close(self) -> None: ...


class Wire(Protocol):
    """The connection; `elasticd.train.session.agent_link.Link` outside tests."""

    def send(self, message: FromWorker, *, is_news: bool = False) -> None: ...
    def messages(self) -> Iterator[ToWorker]: ...
    def close(self) -> None: ...
