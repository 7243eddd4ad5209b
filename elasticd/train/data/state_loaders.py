"""The loaders of a state, each with a ledger of its committed samples (positions: cursor.py)."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from elasticd.errors import CallError
from elasticd.train.data.cursor import DataPosition
from elasticd.train.data.kept_batches import Check, KeptBatches
from elasticd.train.data.ledger import DataTotals, Ledger
from elasticd.train.data.loader import Loader, loader_core_of
from elasticd.train.data.loader_core import LoaderCore
from elasticd.train.session.step_session import EpochProgress, StepSession
from elasticd.train.world import World

__all__ = ["Loaders"]


class Loaders:
    """The loaders by the names that the script gave them."""

    def __init__(self, checks: list[Check]) -> None:
        """`checks` are asked before the next commit."""
        self.named: dict[str, Loader] = {}
        self.epochs = 0
        """The number of epochs for which `state.epochs` was called; 0: it was not called."""
        self.steps = 0
        """The step at which the script said that it ends; 0: it did not."""
        self._cores: dict[str, LoaderCore] = {}
        self._ledgers: dict[str, Ledger] = {}
        self.rows: Sequence[tuple[LoaderCore, Ledger]] = ()
        """Each loader of this world with its ledger."""
        self._kept = KeptBatches(self._cores, checks)
        self._checks = checks
        self.held = 0
        """The number of epochs whose end is not committed yet, 0 or 1: the next commit counts it.
        After a failure before that the epoch ends again."""
        self._waits_from: list[DataPosition] | None = None
        """The committed positions at the first commit that waits for its optimizer's step; None if
        none waits."""
        self._began: tuple[int, int] | None = None
        """The epoch that began last, and the step at which it first did."""
        self._is_told = self._is_loss_told = self._is_restart_told = False

    def expect(self, epochs: int, steps: int, left: int) -> None:
        """Take note of where the script means to end; `left` is the number of epochs until then.

        Raises:
            CallError: the number of steps is no whole number.
        """
        if not isinstance(steps, int) or steps < 0:
            raise CallError(
                f"state.epochs(..., steps={steps!r}): give the number of the script's last step, a "
                "whole number, or leave it out."
            )
        self.epochs, self.steps = epochs, steps
        if self.named and left > 1:
            self._checks[:] = [
                each for each in self._checks if not isinstance(each, _ExhaustedEpochs)
            ]
            self._checks.append(_ExhaustedEpochs(self._cores, left))

    def begin_epoch(self, epoch: int, step: int) -> int:
        """Take note that an epoch begins at this step, and return its number.

        Without a loader it begins anew after each change of world: that is said once.
        """
        if self._began is None or self._began[0] != epoch:
            self._began = (epoch, step)
        done = step - self._began[1]
        if done and not self.named and not self._is_restart_told:
            self._is_restart_told = True
            sys.stderr.write(
                f"elasticd: epoch {epoch} begins anew after {done} of its steps, since the state "
                "has no elasticd.Loader: unless the script skips what it has trained on, the same "
                "samples are trained on again, and no summary counts them. Loop over an "
                "elasticd.Loader in the state.\n"
            )
        return epoch

    def add(self, name: str, loader: Loader) -> None:
        """Add a loader, or replace one of an earlier generation."""
        self.named[name], self._cores[name] = loader, loader_core_of(loader)
        self._ledgers.setdefault(name, Ledger(epoch=loader.epoch, consumed=loader.consumed))

    def place(self, world: World, session: StepSession, modules: Iterable[torch.nn.Module]) -> None:
        """Place each loader at its last commit, for this rank of this world; `modules` train on it.

        In a BatchNorm, which needs two values, a rank with one sample of a tail would end the job.
        """
        parts = (part for module in modules for part in module.modules())
        least = 2 if any(isinstance(part, _BatchNorm) for part in parts) else 1
        has_begun = any((each.epoch, each.consumed) != (0, 0) for each in self.named.values())
        for loader in self._cores.values():
            loader.place(world.rank, world.size, session, least, has_begun=has_begun)
            loader.kept = self._kept
        self.rows = [(loader, self._ledgers[name]) for name, loader in self._cores.items()]
        self._kept.begin()
        self.held, self._waits_from = 0, None

    def commit(self, epoch: int | None, *, is_waiting: bool = False) -> None:
        """Count the delivered samples; `epoch` is the one that begins now, if one does.

        `is_waiting` says that no optimizer has used the gradients of these samples yet, so they
        count with the next commit. At the end of an epoch they count in any case, and after one
        that is held.
        """
        if is_waiting and epoch is None:
            if not self.held:
                self._waits_from = self._committed
                self._tell_once()
                return
            self._tell_of_loss_once()  # It keeps what the end of the epoch did.
        self.held = 0
        for name, loader in self._cores.items():
            ledger = self._ledgers[name]
            if epoch is not None:
                ledger.take(loader.end_epoch(epoch))
            ledger.take(loader.commit())

    @property
    def has_uncounted(self) -> bool:
        """Return whether the script was given batches that no commit has counted."""
        return any(each.has_delivered for each in self._cores.values())

    def hold_epoch(self, epoch: int, *, is_other: bool) -> bool:
        """Begin `epoch` and count nothing, so that a failure goes back to the epoch before it.

        Return whether that was possible; if not, the script is told once what a failure loses. It
        is not possible where parameters differ from those of a commit (`is_other`), or after a
        commit that waited for a step: the next one would keep what the epoch's end did (a
        scheduler's step), and a failure would have that done twice.
        """
        if is_other or self.held or self._waits_from == self._committed:
            self._tell_of_loss_once()
            return False
        for each in self._cores.values():
            each.hold_epoch(epoch)
        self.held = 1
        return True

    @property
    def totals(self) -> DataTotals | None:
        """Return the counts of all loaders; None if there is no loader."""
        return DataTotals.of(self._ledgers.values()) if self._ledgers else None

    @property
    def epoch_progress(self) -> EpochProgress:
        """Return how far the first loader is; any thread may call this."""
        first = next(iter(self.named.values()), None)
        if first is None:
            return EpochProgress(epochs=self.epochs, steps=self.steps)
        samples = sum(each.samples for each in list(self._ledgers.values()))
        return EpochProgress(first.consumed, first.epoch_samples, self.epochs, samples, self.steps)

    def state_dict(self) -> dict[str, Any]:
        """Return the ledgers' counts; the positions are the loaders' own."""
        return {name: each.state_dict() for name, each in self._ledgers.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over counts that `state_dict` returned, also of a loader that is built later."""
        for name, counts in state.items():
            self._ledgers.setdefault(name, Ledger()).load_state_dict(counts)

    @property
    def _committed(self) -> list[DataPosition]:
        return [each.cursor.committed for each in self._cores.values()]

    def _tell_of_loss_once(self) -> None:
        if not self._is_loss_told:
            self._is_loss_told = True
            sys.stderr.write(
                "elasticd: an epoch ended with gradients that no optimizer's step has used, and "
                "their samples count: a failure before the next step loses these gradients. Make a "
                "step with the last batches of each epoch.\n"
            )

    def _tell_once(self) -> None:
        if not self._is_told and any(each.has_delivered for each in self._cores.values()):
            self._is_told = True
            sys.stderr.write(
                "elasticd: a commit without an optimizer's step, and gradients are waiting: these "
                "samples count from the commit after the next step, and are read again after a "
                "failure before it; so count them by enumerate(state.data), not by state.step.\n"
            )


class _ExhaustedEpochs:
    """Looks whether all epochs end before the script has taken a batch or made a step."""

    def __init__(self, loaders: Mapping[str, LoaderCore], left: int) -> None:
        self._loaders, self._left = loaders, left

    def __call__(self, has_stepped: bool) -> bool:
        """Return whether the next commit is to be looked at, too.

        Raises:
            CallError: the last epoch ends, and none had a batch or a step.
        """
        cursors = [each.cursor for each in self._loaders.values()]
        if has_stepped or any(each.pending != each.committed for each in cursors):
            return False
        self._left -= 1
        if self._left == 0:
            raise CallError(
                "All epochs of state.epochs(...) ended without a batch or a step, as in "
                "list(state.epochs(10)), which ends each epoch before it is trained, so that "
                "nothing is left to train after a failure: loop over it, "
                "`for epoch in state.epochs(10):`."
            )
        return True
