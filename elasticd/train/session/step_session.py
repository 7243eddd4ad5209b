"""The part of a session that a state, its optimizers and its loaders use.

It stands apart from the session's other ports, so that an import of State loads no message and no
client of the keeper.
"""

from typing import Any, NamedTuple, Protocol

import torch

from elasticd.train.introspection.time_spent import SecondsSpent

__all__ = ["DeviceMark", "EpochProgress", "Pauses", "QueuedSteps", "StepSession"]


class DeviceMark(Protocol):
    """A place in the queue of kernels of a device, like a CUDA event."""

    begun: int | None
    """How many collectives of this rank come before it, as later ones may still be far from done;
    None: it says nothing of them.
    """

    def query(self) -> bool:
        """Return whether the device has come to this place."""


class StepSession(Protocol):
    """Takes note of each step, and says where `train` may be interrupted."""

    generation: int
    spent: SecondsSpent
    """The seconds that loading data and copying take; loaders and copies add to them."""

    def check(self, step: int) -> None:
        """Let the script go on after this step, unless the world is to be left after it.

        Raises: Interrupted: a change of world is due.
        """

    def committed(self, position: tuple[int, int]) -> None:
        """Take note of a commit; the position is (steps, epochs) so far, and the state is clean."""

    def synchronize(self, mark: DeviceMark | None = None) -> None:
        """Return once all results that this step's optimizers will read are known to be good; with
        a `mark`, the results of the kernels queued before it.

        Raises: Interrupted, GroupBroken: the results are not good, because the world is over or a
            peer is gone.
        """

    def pause(self, why: str | None) -> None:
        """Begin a time without steps for the reason `why`; None ends it."""

    def delivered(self) -> None:
        """Count a batch that the script gets now; a change of world may be due here, too.

        Raises: Interrupted: a change of world is due.
        """

    def sequence(self) -> int | None:
        """Return how many collectives this rank has begun; None if they are not counted."""


class QueuedSteps(Protocol):
    """Steps for whose collectives the host does not wait (`process_group/queued_steps.py`)."""

    def queue(self, optimizer: torch.optim.Optimizer) -> bool: ...
    def end_step(self) -> None: ...
    def confirm(self) -> None: ...
    def end_commit(self) -> None: ...
    def made(self, begun: dict[Any, bool]) -> dict[Any, bool]: ...


class Pauses:
    """The pauses of one generation, which may stand within each other."""

    def __init__(self, session: StepSession) -> None:
        self._session = session
        self._reasons: list[str] = []

    def begin(self, why: str) -> bool:
        """Begin a pause; return whether it stands in no other pause."""
        self._reasons.append(why)
        self._session.pause(why)
        return len(self._reasons) == 1

    def end(self) -> bool:
        """End the innermost pause, go on with the one around it; return whether there is none."""
        self._reasons.pop()
        self._session.pause(self._reasons[-1] if self._reasons else None)
        return not self._reasons


class EpochProgress(NamedTuple):
    """How far an epoch is, and how many epochs there will be; 0 where that is not known."""

    consumed: int = 0
    """Samples of this epoch in applied steps, of all ranks together."""
    epoch_samples: int = 0
    """Samples of a whole epoch."""
    epochs: int = 0
    """The number of epochs that the script gave to `state.epochs`."""
    samples: int = 0
    """Samples in applied steps of the whole run, of all ranks together."""
    steps: int = 0
    """The step at which the script said that it ends."""
