"""Finds out whether a script trains on batches that it keeps.

A Loader gives a batch once. A script that keeps them (`list(state.data)`, `itertools.cycle`, a
cache of its own) makes more steps of a pass than commits know of: the first commit counts all that
was given before it, and after a failure the script gets the rest of the epoch, or nothing. A commit
without a new batch is no proof, since some have several commits for a batch, or steps that need
none. So these are refused:

- a cycle that asks for more at the end of its first pass;
- a whole pass before one commit, which has a step, and then a step without a new batch, while
  tensors of several of its batches are alive;
- a step without a new batch after a pass, if a cycle keeps as many things as the pass gave batches.

Where this proves nothing (copies of the batches, on a device perhaps) the script is warned once,
and likewise when steps without a batch go on and on. Only the first commits of a generation and
those after such a pass are looked at; all others pay nothing.
"""

import gc
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

import torch

from elasticd.errors import CallError
from elasticd.train.data.cursor import DataPosition
from elasticd.train.introspection.own_loop import own_loop

if TYPE_CHECKING:
    from elasticd.train.data.loader_core import LoaderCore

__all__ = ["Check", "KeptBatches", "PassBegun"]

MANY_STEPS = 100
"""After this many steps without a new batch a person is told."""

_LOOKED_AT = 8
"""How many batches of a pass are looked at, from its begin; the others cost nothing."""
_DEPTH = 2
"""How far down in a batch its tensors are looked for."""

_Tensors = tuple["weakref.ref[torch.Tensor]", ...]
"""The tensors of one batch."""

Check = Callable[[bool], bool | None]
"""Asked before a commit, which has an optimizer's step or not; true to be asked again."""


class _FullPass(NamedTuple):
    """A pass without a commit between its first and its last batch."""

    loader: str
    batches: int
    end: DataPosition
    given: list[_Tensors]
    """The first of its batches."""
    has_gradients: bool
    """It was no evaluation."""

    def is_kept(self) -> bool:
        """Return whether several of the pass's batches are alive; a loop's variable holds one."""
        return sum(any(each() is not None for each in batch) for batch in self.given) > 1


class KeptBatches:
    """The check of one state; `checks` has the questions for the next commit."""

    def __init__(self, loaders: Mapping[str, "LoaderCore"], checks: list[Check]) -> None:
        self._loaders = loaders
        self._checks = checks
        self._is_told = self._is_loop_told = False
        self._begin()

    def _begin(self) -> None:
        self._commits = self._steps = 0
        """The commits with new batches, and those since then with a step and no new batch."""
        self._first: dict[str, DataPosition | None] = {}
        """What was committed when the first pass over each began; None after the second one."""
        self._ended: set[str] = set()
        self._batches = 0
        """How many batches the newest pass had that ended."""
        self._full_passes: dict[str, _FullPass] = {}
        """The newest whole pass of each loader."""
        self._is_trained = self._is_alone = False
        """The commit that counted it had a step, and no batch of another loader."""

    def begin(self) -> None:
        """Begin a generation: the batches that `train` kept are gone."""
        self._begin()
        if self._loaders:
            self._ask()

    def pass_begins(self, loader: "LoaderCore", frame: FrameType) -> "PassBegun":
        """Note a pass that the function of this frame asks for."""
        name = next((name for name, each in self._loaders.items() if each is loader), "")
        committed = loader.cursor.committed
        if name not in self._first:
            self._first[name] = committed
        elif (first := self._first[name]) is not None:
            self._first[name] = None
            if first != committed:
                self._tell_of_loop_once(frame)
        return PassBegun(self, name, loader, may_cycle=_may_cycle(frame))

    def pass_ended(self, name: str, batches: int, given: list[_Tensors], *, is_full: bool) -> None:
        """Note the batches of a pass; `is_full` says that none was part of a commit."""
        if is_full and batches > 1:
            end = self._loaders[name].cursor.pending
            self._full_passes[name] = _FullPass(name, batches, end, given, torch.is_grad_enabled())
            self._is_trained = False
        elif name in self._ended:
            return  # A cycle has but one pass.
        self._ended.add(name)
        self._batches = batches
        self._ask()

    def check(self, has_stepped: bool) -> bool:
        """Look at the batches since the last commit.

        Raises:
            CallError: the script trains on some that it has kept.
        """
        given = [name for name, each in self._loaders.items() if each.has_delivered]
        if given:
            self._commits, self._steps = self._commits + 1, 0
            self._full_passes = {
                name: each
                for name, each in self._full_passes.items()
                if name in given and self._loaders[name].cursor.pending == each.end
            }
            if self._full_passes:
                self._is_trained, self._is_alone = has_stepped, len(given) == 1
                return True
            return self._commits < 2
        if not has_stepped:
            return True
        self._look_at_passes()
        self._steps += 1
        if self._steps == 1 and self._batches > 1:
            _check_replay(self._batches)
        if self._steps < max(MANY_STEPS, self._batches):
            return True
        self._tell_once()
        return False

    def _ask(self) -> None:
        if self.check not in self._checks:
            self._checks.append(self.check)

    def _look_at_passes(self) -> None:
        """Look, at a step without a new batch, for batches left of passes counted as a whole."""
        passes, self._full_passes = self._full_passes, {}
        for each in passes.values() if self._is_trained else ():
            if each.is_kept():
                raise _kept(each)
            if each.has_gradients and self._is_alone:
                self._tell_once(f"state.{each.loader} gave a whole pass to one commit, and ")

    def _tell_once(self, before: str = "") -> None:
        if not self._is_told:
            self._is_told = True
            sys.stderr.write(
                f"elasticd: {before}{_counted(max(self._steps, 1))} committed without a new batch. "
                "If they train on batches that the script keeps, a failure will not bring these "
                "back: loop over the Loader itself.\n"
            )

    def _tell_of_loop_once(self, frame: FrameType) -> None:
        head = "" if self._is_loop_told else own_loop(frame)
        if head:
            self._is_loop_told = True
            sys.stderr.write(
                f"elasticd: `{head}` begins anew whenever train is called again, so after a "
                "failure the script trains for longer than it says: loop over state.epochs(...), "
                "or ask state.step.\n"
            )


class PassBegun:
    """The position of a loader at the beginning of a pass."""

    def __init__(
        self, kept: KeptBatches, name: str, loader: "LoaderCore", *, may_cycle: bool
    ) -> None:
        self._kept, self._name, self._loader = kept, name, loader
        self._may_cycle = may_cycle
        self._start = loader.cursor.pending
        self._committed = loader.cursor.committed
        self._given: list[_Tensors] = []

    def gave(self, batch: object) -> bool:
        """Take note of a batch; return whether the next one is of interest, too."""
        self._given.append(tuple(weakref.ref(each) for each in _tensors(batch, _DEPTH)))
        return len(self._given) < _LOOKED_AT

    def end(self, iterator: object) -> None:
        """Check the batches of the pass; `iterator` is at its end.

        Raises:
            CallError: the pass was given to a cycle.
        """
        if self._may_cycle and any(map(_is_cycle, gc.get_referrers(iterator))):
            raise _cycled()
        cursor, size = self._loader.cursor, self._loader.batch_size
        if self._name and cursor.pending.epoch == self._start.epoch:
            samples = cursor.pending.consumed - self._start.consumed
            is_full = cursor.committed == self._committed
            batches = -(-samples // size)
            self._kept.pass_ended(self._name, batches, self._given, is_full=is_full)


def _counted(steps: int) -> str:
    return "a step was" if steps == 1 else f"{steps} steps were"


def _may_cycle(frame: FrameType) -> bool:
    """Return whether the function of this frame, which asks a Loader for a pass, may feed a cycle.

    The cycle itself is no Python function, so the frame is that of the cycle's caller.
    """
    names = frame.f_code.co_names
    # Not its local variables: before Python 3.13 who reads them keeps them, the last batch and its
    # graph among them, until the function returns.
    return "cycle" in names or any(frame.f_globals.get(n) is itertools.cycle for n in names)


def _is_cycle(value: object) -> bool:
    return type(value) is itertools.cycle


def _check_replay(batches: int) -> None:
    """Look for a cycle that repeats the batches which it has kept of a pass of this size."""
    if any(_is_cycle(each) and _replays(each, batches) for each in gc.get_objects()):
        raise _cycled()


def _replays(cycle: object, batches: int) -> bool:
    """Return whether a cycle repeats batches. A cycle has an iterator beside its list only in its
    first pass. A value without a tensor is no batch.
    """
    held = gc.get_referents(cycle)
    return (
        len(held) == 1
        and isinstance(held[0], list)
        and len(held[0]) == batches
        and all(any(True for _ in _tensors(each, _DEPTH)) for each in held[0])
    )


def _tensors(value: object, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each, depth - 1)
    elif depth and isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each, depth - 1)


def _cycled() -> CallError:
    return CallError(
        "itertools.cycle keeps the batches of its first pass over a Loader and shows those again, "
        "so that after a failure it would show only what was left of the epoch, or nothing: begin "
        "a new pass instead, with a generator of `while True: yield from state.data`."
    )


def _kept(ended: _FullPass) -> CallError:
    name = ended.loader
    return CallError(
        f"state.{name} gave all {ended.batches} batches of a pass before one commit, and the next "
        "step had no new one while the script holds them, so it seems to train on batches that it "
        "keeps, which no Loader gives again after a failure: commit in the loop that takes them "
        f"(`for batch in state.{name}: ...; state.commit()`); if these steps need no batch, let go "
        "of them before."
    )
