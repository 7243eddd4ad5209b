"""`State` holds what must survive a change of world; its commits say up to where work counts.

Entries are objects that can save and load themselves, plain values, and functions of `world` that
build such an object. Between two commits a rank may be interrupted anywhere. Three parts bring it
back to the last commit: the step guard restores what optimizers own, the commit copy all else that
changes, and each loader its position. So after `_settle_back` the live state is the committed one,
and may be sent as it is.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Never

import torch

from elasticd.errors import CallError
from elasticd.tensors import tree
from elasticd.tensors.tree import Tree
from elasticd.train.data.kept_batches import Check
from elasticd.train.data.state_loaders import Loaders
from elasticd.train.data.totals import DataTotals, summary
from elasticd.train.interrupt import uninterruptible
from elasticd.train.optimizer.added_groups import BuiltGroups
from elasticd.train.optimizer.nonfinite_gradient import OnNan
from elasticd.train.optimizer.param_groups import groups_kept
from elasticd.train.optimizer.sharded_optimizer import any_rank, is_sharded, make_room, meeting
from elasticd.train.optimizer.step_guard import StepGuard
from elasticd.train.session.watch import EpochProgress, Pauses, StateWatch
from elasticd.train.state import rng
from elasticd.train.state.commit_copy import CommitCopy
from elasticd.train.state.commit_scalars import CommitScalars, Tensors
from elasticd.train.state.entry import (
    StateEntries,
    StateEntryKind,
    kind_of,
    not_assignable,
    plain,
)
from elasticd.train.state.optimizer_coverage import check_coverage
from elasticd.train.state.ownership import Ownership, TiedEntries
from elasticd.train.state.script_hooks import ScriptHooks
from elasticd.train.state.state_dict import described, load, saved
from elasticd.train.world import World

__all__ = ["DataTotals", "State"]


class State:
    """The models, optimizers, schedulers, loaders and plain values that survive.

    An entry is read as an attribute of its name. Plain values (numbers, text, None, tensors, and
    lists, tuples and dicts of them) may be assigned too; an assignment counts from the next
    `commit` on. A function of `world` is called again for each generation, in the order of the
    entries, and its result gets the state of the result before.
    """

    def __init__(self, *unnamed: Never, seed: int = 0, **entries: Any) -> None:
        """Take the entries by their names.

        Args:
            seed: decides which random numbers a rank draws in a step: a step that is done again
                draws the same.

        Raises:
            CallError: an entry cannot survive, or has no name; the message says what to give.
        """
        self._random = rng.StepSeed(int(seed))
        given = StateEntries.of(entries, unnamed)
        self._kinds, self._values = given.kinds, given.values
        self._builders, self._objects = given.builders, given.objects
        self._checks: list[Check] = [self._check]  # of the next commit
        self._loaders = Loaders(self._checks)
        for name, value in given.loaders.items():
            self._loaders.add(name, value)
        # Read several times a step: where Python looks first, so that `__getattr__` is not needed.
        self.__dict__.update(self._objects | self._loaders.named)
        self._built: dict[str, Any] = {}
        self._loaded: dict[str, Any] = {}
        """The states of entries that are not built yet."""
        self._is_prebuilt = False
        """True if `_build` ran ahead of `_enter`, so that a state can be loaded in its place."""
        self._step = self._epoch = 0
        self._on_nan = "ignore"
        self._is_new = True
        self._is_broken = False
        """True if a commit or a load was interrupted in the middle."""
        self._watch: StateWatch | None = None
        self._thread: int | None = None
        self._groups = BuiltGroups(())
        self._hooks = ScriptHooks()
        self._tied = TiedEntries(self._values, self._objects)
        self._keep = CommitCopy()
        self._guard = StepGuard()
        self._given = CommitScalars()

    # --- for the script ---------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The number of steps committed so far."""
        return self._step

    @property
    def epoch(self) -> int:
        """The number of epochs that are over."""
        return self._epoch

    @property
    def seed(self) -> int:
        """The seed that was given."""
        return self._random.seed

    @uninterruptible
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
            CallError: it is called from another thread, or outside of `train`, or without names.
        """
        if unnamed:
            raise CallError("commit() takes its numbers by name: state.commit(loss=loss).")
        if (watch := self._watch) is None or threading.get_ident() != self._thread:
            watch = self._inside("commit()")
        given = self._given.checked(scalars, hist)
        self._take(self._step + 1, self._epoch)
        self._given.set(given, self._step, hist)
        watch.committed((self._step, self._epoch))
        watch.check(self._step)

    def epochs(self, count: int, *, steps: int = 0) -> Iterator[int]:
        """Iterate over the epochs that are left; the end of each is a commit, too.

        If the world changes after the loop over the data (in an evaluation, say), that part of the
        epoch is done again.

        Args:
            count: the number of epochs of the whole run.
            steps: the step at which the script ends by itself; it only changes the estimated end.
        """
        self._inside("epochs()")
        self._loaders.expect(count, steps, count - self._epoch)
        return self._passes(count)

    @contextmanager
    @uninterruptible
    def pause(self, why: str) -> Iterator[None]:
        """Say that no step will end for a while, and `why`: an evaluation, say, or a big save."""
        watch = self._inside("pause()")
        if self._pauses.begin(why):
            self._guard.begin_pause()
        try:
            yield
        finally:
            is_over = self._pauses.end()
        if is_over:
            watch.check(self._step)

    def summary(self) -> str:
        """Return a sentence or two on what the run did."""
        return summary(self._step, self._epoch, self._loaders.totals, self._guard.skipped)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            for home in (self._objects, self._values, self._loaders.named, self._built):
                if name in home:
                    return home[name]
            if name in self._builders:
                raise AttributeError(f"state.{name} is built when train is called, not before.")
        raise AttributeError(f"The state has no {name}: declare it in State({name}=...).")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif name in self._values:
            self._values[name] = plain(f"state.{name}", value)
        else:
            raise not_assignable(name, self._kinds.get(name), is_own=hasattr(type(self), name))

    # --- for `run` and its rooms ------------------------------------------------------------------

    @property
    def _position(self) -> tuple[int, int]:
        return self._step, self._epoch

    @property
    def _is_dirty(self) -> bool:
        return self._is_broken or self._guard.is_dirty

    @property
    def _is_clean(self) -> bool:
        return not self._is_dirty

    @property
    def _has_stepped(self) -> bool:
        """True if every optimizer that began its step has also ended it, and no commit followed."""
        return not self._is_broken and self._guard.has_stepped

    @property
    def _ledger(self) -> DataTotals:
        return self._loaders.totals or DataTotals.of(())

    @property
    def _epoch_progress(self) -> EpochProgress:
        return self._loaders.epoch_progress

    def _scalars(self) -> dict[str, float]:
        """Return those numbers of the last commit that are known without waiting; any thread."""
        return self._given.known()

    def _enter(self, world: World, watch: StateWatch) -> None:
        """Get ready for `train` in this world; the calling thread becomes the training thread."""
        self._settle_back()
        self._random.enter(world.rank)
        self._thread = threading.get_ident()
        self._build(world)
        if self._is_new:
            self._tree()  # An entry that cannot be sent is refused now, not in the first failure.
        self._bind()
        for module in self._of(torch.nn.Module):
            for parameter in module.parameters():
                parameter.grad = None
        for optimizer in self._of(torch.optim.Optimizer):
            optimizer.zero_grad(set_to_none=True)
        self._loaders.place(world, watch, self._of(torch.nn.Module))
        # If this rank was dirty and got no state, the ranks have agreed that its own counts.
        self._guard.reset()
        self._keep.copy(self._keep.collect())
        self._is_new = self._is_broken = False
        every, size = self._optimizers, world.size
        self._guard.arm(watch, OnNan(self._on_nan), meeting(every, size), any_rank(every, size))
        self._watch, self._pauses = watch, Pauses(watch)
        self._random.reseed(self._epoch, self._step)

    @property
    def _is_sharded(self) -> bool:
        """True if no rank has the whole state, so that none can give it to others."""
        return is_sharded(self._of(torch.optim.Optimizer))

    def _prebuild(self, world: World) -> None:
        """Build what depends on the world, into which another state will be loaded."""
        self._built, self._loaded = {}, {}
        self._is_broken = self._position != (0, 0)  # It stays so until that is loaded.
        self._build(world)
        self._is_prebuilt = True

    def _make_room(self) -> None:
        """Allocate memory for each tensor of a sharded state that will be loaded."""
        make_room(self._of(torch.optim.Optimizer))

    def _leave(self) -> None:
        """Note that `train` was left, in whatever way; other ranks can still get the state."""
        self._guard.disarm()
        self._watch = None
        self._thread = None

    def _settle_back(self) -> None:
        """Go back to the last commit if this rank can; afterwards `_is_clean` is final.

        The caller may repeat this, and must do it before it calls `_tree`.
        """
        self._guard.undo()
        if not self._is_broken and not self._keep.put_back():
            self._is_broken = True
        self._guard.trust()

    def _structure(self) -> tuple[str, ...]:
        """Return lines that must be equal on all ranks of a job: names, types and shapes."""
        every = [(name, kind, getattr(self, name, None)) for name, kind in self._kinds.items()]
        return tuple(line for each in every for line in described(*each))

    def _check(self, _: bool = False) -> None:
        """Raise CallError if an entry cannot be sent, or no entry holds a trained parameter."""
        objects = [name for name, kind in self._kinds.items() if kind is StateEntryKind.OBJECT]
        check_coverage(self._of(torch.optim.Optimizer), self._tree(), objects)

    def _tree(self) -> Tree:
        """Return the committed state, not copied; it is called after `_settle_back` or a commit."""
        live = self._objects | self._loaders.named | self._built
        entries = {name: saved(value) for name, value in live.items()}
        entries |= self._values | self._loaded | self._tied.told()
        return tree.flatten("state", {**entries, "_ledgers": self._loaders.state_dict()})

    def _retie(self, skeleton: str) -> None:
        """Let entries share their memory as in a state that will be written into them."""
        self._is_broken |= self._tied.adopt_from(skeleton)

    def _load(self, source: Tree, position: tuple[int, int]) -> None:
        """Take over another rank's committed state; afterwards this rank is clean at `position`."""
        entries = tree.unflatten(source)
        self._is_broken = True
        self._loaders.load_state_dict(entries.pop("_ledgers"))
        self._keep.forget()
        self._tied.adopt(ties := entries.pop(TiedEntries.KEY, None))
        later = () if self._is_prebuilt else [name for name in entries if name in self._builders]
        self._loaded = {name: entries.pop(name) for name in later}
        homes = self._objects | self._loaders.named | self._built | self._values
        loaded = {name: load(homes[name], each, source.is_placed) for name, each in entries.items()}
        self._values.update((name, loaded[name]) for name in self._values.keys() & loaded.keys())
        self._tied.adopt(ties)  # What is new here had no place before.
        if not self._is_prebuilt:
            self._built = {}
        self._step, self._epoch = position
        self._guard.reset()
        self._is_broken = self._is_new = False

    # --- private ----------------------------------------------------------------------------------

    def _inside(self, what: str) -> StateWatch:
        if self._watch is None:
            raise CallError(
                f"{what} was called outside of elasticd.run: call it in train(state, world), which "
                "elasticd.run(train, state) calls."
            )
        if threading.get_ident() != self._thread:
            raise CallError(f"{what} was called from another thread: call it from that of train.")
        return self._watch

    @uninterruptible
    def _passes(self, count: int) -> Iterator[int]:
        while self._epoch < count:
            yield self._epoch
            watch = self._inside("epochs()")
            self._take(self._step, self._epoch + 1)
            watch.committed((self._step, self._epoch))
            watch.check(self._step)

    def _take(self, step: int, epoch: int) -> None:
        """Make the live state the committed one."""
        if step & (step - 1) == 0:
            self._check()
        if self._checks:
            has_stepped = self._has_stepped or self._keep.has_updated_scaler()
            self._checks[:] = [check for check in self._checks if check(has_stepped)]
        groups = self._keep.groups(self._groups.check)
        self._guard.begin_commit()
        try:
            is_waiting = self._guard.is_waiting and not self._keep.has_updated_scaler()
            kept = self._keep.collect(groups)
        except BaseException as exc:
            self._guard.cancel_commit()
            if isinstance(exc, CallError):
                self._tree()  # Its error names the path of what cannot be sent.
            raise
        self._keep.copy(kept)
        self._loaders.commit(epoch if epoch > self._epoch else None, is_waiting=is_waiting)
        self.__dict__.update(_step=step, _epoch=epoch)  # As `__setattr__` would, without a call.
        self._guard.end_commit()
        self._random.reseed(epoch, step)

    def _build(self, world: World) -> None:
        """Call the builders; each result gets the state of the result before."""
        if self._is_prebuilt:
            self._is_prebuilt = False
            return
        self._hooks.take_off()
        self._hooks.note(self._objects.values())
        loaders = {n: v for n, v in self._loaders.named.items() if n in self._builders}
        before = {name: saved(value) for name, value in (self._built | loaders).items()}
        # The states stay until all are built: a builder may be interrupted, too.
        self._loaded = before | self._loaded
        self._built = {}
        self._random.reseed_alike(self._epoch, self._step)
        with groups_kept(self._of(torch.optim.Optimizer) if self._loaded else ()):
            for name, builder in self._builders.items():
                value = builder(world)
                if kind_of(name, value, is_built=True) is StateEntryKind.LOADER:
                    self._loaders.add(name, value)
                else:
                    self._built[name] = value
        for name in filter(self._loaded.__contains__, self._builders):
            load(getattr(self, name), self._loaded[name])
        self._loaded = {}

    def _bind(self) -> None:
        """Sort the entries: what optimizers own, and what is copied at each commit."""
        owned = Ownership.of(self._objects | self._built)
        self._keep.bind(
            self._values, owned.others, owned.modules, tuple(owned.optimizers), owned.wrappers
        )
        self._tied.bind()
        self._guard.bind(owned.optimizers, owned.names)
        self._optimizers: tuple[torch.optim.Optimizer, ...] = self._guard.optimizers
        self._groups = BuiltGroups(self._optimizers)

    def _of(self, kind: type) -> list[Any]:
        return [each for each in (self._objects | self._built).values() if isinstance(each, kind)]

    def _modules(self) -> dict[str, torch.nn.Module]:
        """Return the modules that are not built again for each world, by their names."""
        return self._tied.modules
