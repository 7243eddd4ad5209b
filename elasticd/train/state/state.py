"""`State` holds what must survive a change of world; its commits say up to where work counts.

A script sees only the `State`. `StateCore` does the work, and the other rooms get it from
`core_of`.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Never

import torch

from elasticd.errors import CallError
from elasticd.train.data.ledger import DataTotals, summary
from elasticd.train.scalars.commit_scalars import Tensors
from elasticd.train.state.entry import not_assignable, plain
from elasticd.train.state.state_core import StateCore

__all__ = ["DataTotals", "State", "core_of"]


class State:
    """The models, optimizers, schedulers, loaders and plain values that survive.

    An entry is read as an attribute of its name. Plain values (numbers, text, None, tensors, and
    lists, tuples and dicts of them) may be assigned too; an assignment counts from the next
    `commit` on. A function of `world` is called again for each generation, in the order of the
    entries, and its result gets the state of the result before.
    """

    _core: StateCore

    def __init__(self, *unnamed: Never, seed: int = 0, **entries: Any) -> None:
        """Take the entries by their names.

        Args:
            seed: decides which random numbers a rank draws in a step: a step that is done again
                draws the same.

        Raises:
            CallError: an entry cannot survive, or has no name; the message says what to give.
        """
        core = StateCore(entries, unnamed, int(seed))
        # Entries are read several times a step: they stand where Python looks first, so that
        # `__getattr__` is not needed.
        self.__dict__.update(core.objects | core.loaders.named, _core=core)

    @property
    def step(self) -> int:
        """The number of steps committed so far."""
        return self._core.step

    @property
    def epoch(self) -> int:
        """The number of epochs that are over."""
        return self._core.epoch + self._core.loaders.held

    @property
    def seed(self) -> int:
        """The seed that was given."""
        return self._core.seed

    def commit(
        self, *unnamed: Never, hist: Tensors | None = None, **scalars: float | torch.Tensor
    ) -> None:
        """End a step: the work since the last commit counts from here on.

        Every rank calls this once in each step, after `optimizer.step()`. It may leave `train`.

        Args:
            hist: tensors of any shape whose values TensorBoard shows as histograms.
            scalars: numbers, or tensors of one element, that `elasticd status` and TensorBoard
                show. Both kinds are read later, without waiting for the device.

        Raises:
            CallError: the script calls it from another thread, or outside of `train`, or without
                names.
        """
        if unnamed:
            raise CallError("commit() takes its numbers by name: state.commit(loss=loss).")
        self._core.commit(hist, scalars)

    def epochs(self, count: int, *, steps: int = 0) -> Iterator[int]:
        """Iterate over the epochs that are left; the end of each is a commit, too.

        If the world changes after the loop over the data (in an evaluation, say), the script
        repeats that part of the epoch; also where gradients wait for the next epoch's step, until
        that step.

        Args:
            count: the number of epochs of the whole run.
            steps: the step at which the script ends by itself; it only changes the estimated end.
        """
        return self._core.epochs(count, steps)

    def pause(self, why: str) -> AbstractContextManager[None]:
        """Say that no step will end for a while, and `why`: an evaluation, say, or a big save."""
        return self._core.pause(why)

    def summary(self) -> str:
        """Return a sentence or two on what the run did."""
        core = self._core
        return summary(core.step, core.epoch, core.loaders.totals, core.guard.skipped)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            core = self._core
            for home in core.homes:
                if name in home:
                    return home[name]
            if name in core.builders:
                raise AttributeError(f"state.{name} is built when train is called, not before.")
        raise AttributeError(f"The state has no {name}: declare it in State({name}=...).")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif name in self._core.values:
            self._core.values[name] = plain(f"state.{name}", value)
        else:
            raise not_assignable(name, self._core.kinds.get(name), is_own=hasattr(type(self), name))


def core_of(state: State) -> StateCore:
    """Return the working parts of a state, which other rooms use in its place."""
    return state._core
