"""`State`: what must survive a change of world, and the commits that say up to where it counts.

Entries are objects that can save and load themselves, plain values, and functions of `world` that
build such an object. Between two commits a rank may be interrupted anywhere. Three parts bring
it back to the last commit: `guard` what optimizers own, `keep` all else that changes, a loader its
position. So after `_settle_back` what is live is what was committed, and may be sent as it is.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
from elasticd.train.optimizer.sharded_optimizer import any_rank, is_sharded, make_room, meeting
from elasticd.train.optimizer.step_guard import StepGuard
from elasticd.train.session.watch import EpochProgress, StateWatch
from elasticd.train.state import rng
from elasticd.train.state.commit_copy import CommitCopy
from elasticd.train.state.commit_scalars import CommitScalars, Tensors
from elasticd.train.state.entry import Kind, checked_name, kind_of, not_assignable, plain, unwrapped
from elasticd.train.state.optimizer_coverage import check_coverage
from elasticd.train.state.ownership import Ownership
from elasticd.train.state.script_hooks import ScriptHooks
from elasticd.train.state.state_dict import described, load, saved
from elasticd.train.world import World

__all__ = ["State", "DataTotals"]

_ENTRIES = frozenset({Kind.MODULE, Kind.OPTIMIZER, Kind.SCALER, Kind.OBJECT})
_NO_RANK = -1
"""What all ranks build alike is seeded alike."""


class State:
    """What survives: models, optimizers, schedulers, loaders, plain values.

    An entry is read as an attribute of its name. Plain values (numbers, text, None, tensors, and
    lists, tuples and dicts of them) may be assigned too; what is assigned counts from the next
    `commit`. A function of `world` is called anew for each generation, in the order in which the
    entries are given, and what it returns gets the state of what it returned before.

    `seed` decides what random numbers a rank draws in a step, so that a step that is done again
    draws the same.
    """

    def __init__(self, *, seed: int = 0, **entries: Any) -> None:
        self._seed = int(seed)
        self._kinds = {name: kind_of(checked_name(name), value) for name, value in entries.items()}
        self._values = {
            name: plain(f"State({name}=...)", value)
            for name, value in entries.items()
            if self._kinds[name] is Kind.VALUE
        }
        self._builders = {n: v for n, v in entries.items() if self._kinds[n] is Kind.BUILDER}
        self._objects = {n: v for n, v in entries.items() if self._kinds[n] in _ENTRIES}
        self._checks: list[Check] = [self._check]  # of the next commit
        self._loaders = Loaders(self._checks)
        for name, value in entries.items():
            if self._kinds[name] is Kind.LOADER:
                self._loaders.add(name, value)
        # Read several times a step: where Python looks first, so that `__getattr__` is not needed.
        self.__dict__.update(self._objects | self._loaders.named)
        self._built: dict[str, Any] = {}
        self._loaded: dict[str, Any] = {}
        """State that came for what is not built yet."""
        self._is_prebuilt = False
        """`_build` was done ahead of `_enter`, so that a state can be loaded in its place."""
        self._step = self._epoch = 0
        self._on_nan = "ignore"
        self._is_new = True
        self._is_broken = False
        """Neither here nor there: a commit or a load was left in the middle."""
        self._world: World | None = None
        self._seed_prefix, self._seed_epoch = 0, -1
        self._watch: StateWatch | None = None
        self._thread: int | None = None
        self._groups = BuiltGroups(())
        self._hooks = ScriptHooks()
        self._keep = CommitCopy()
        self._guard = StepGuard()
        self._given = CommitScalars()

    # --- for the script ---------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Commits so far."""
        return self._step

    @property
    def epoch(self) -> int:
        """Passes of `epochs` that are over."""
        return self._epoch

    @property
    def seed(self) -> int:
        return self._seed

    @uninterruptible
    def commit(self, *, hist: Tensors | None = None, **scalars: float | torch.Tensor) -> None:
        """End a step: what was done since the last commit counts from here on.

        To be called after `optimizer.step()`, once for each step, by every rank. `scalars` are
        shown by `elasticd status` and TensorBoard, the values of the tensors in `hist` by the
        latter; all are read later, without waiting for the device. Here `train` may be left.

        Raises:
            CallError: called from another thread, or outside of `train`.
        """
        if (watch := self._watch) is None or threading.get_ident() != self._thread:
            watch = self._inside("commit()")
        given = self._given.checked(scalars, hist)
        self._take(self._step + 1, self._epoch)
        self._given.set(given, self._step, hist)
        watch.committed((self._step, self._epoch))
        watch.check(self._step)

    def epochs(self, count: int, *, steps: int = 0) -> Iterator[int]:
        """Iterate over the passes that are left of `count`; the end of each is itself a commit.

        What follows the loop over the data in a pass (an evaluation, say) is done again if the
        world changes before. `steps`: where the script ends by itself, for the end that is shown.
        """
        self._inside("epochs()")
        self._loaders.expect(count, steps)
        return self._passes(count)

    @contextmanager
    @uninterruptible
    def pause(self, why: str) -> Iterator[None]:
        """Say that no step is going to end for a while: an evaluation, a big save."""
        watch = self._inside("pause()")
        self._guard.begin_pause()
        watch.pause(why)
        try:
            yield
        finally:
            watch.pause(None)
        watch.check(self._step)

    def summary(self) -> str:
        """Say in a sentence or two what the run did."""
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

    # --- for run and heal -------------------------------------------------------------------------

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
        """Dirty, but every optimizer that began its step also ended it."""
        return not self._is_broken and self._guard.has_stepped

    @property
    def _ledger(self) -> DataTotals:
        return self._loaders.totals or DataTotals.of(())

    @property
    def _epoch_progress(self) -> EpochProgress:
        return self._loaders.epoch_progress

    def _scalars(self) -> dict[str, float]:
        """What the last commit was given, where it is known without waiting; any thread."""
        return self._given.known()

    def _enter(self, world: World, watch: StateWatch) -> None:
        """Get ready for `train` in this world; the calling thread becomes the training thread."""
        self._settle_back()
        self._world, self._seed_epoch = world, -1
        self._thread = threading.get_ident()
        self._hooks.take_off()
        self._build(world)
        if self._is_new:
            self._tree()  # What cannot travel should be told now, not in the first failure.
        self._bind()
        for module in self._of(torch.nn.Module):
            for parameter in module.parameters():
                parameter.grad = None
        for optimizer in self._of(torch.optim.Optimizer):
            optimizer.zero_grad(set_to_none=True)
        self._loaders.place(world, watch, self._of(torch.nn.Module))
        self._hooks.note(self._objects.values())
        # If this rank was dirty and nobody's state came, the ranks agreed that its own counts.
        self._guard.reset()
        self._keep.copy(self._keep.collect())
        self._is_new = self._is_broken = False
        optimizers, size = self._optimizers, world.size
        calls = meeting(optimizers, size), any_rank(optimizers, size)
        self._guard.arm(watch, OnNan(self._on_nan), *calls)
        self._watch = watch
        self._reseed()

    @property
    def _is_sharded(self) -> bool:
        """No rank has the whole, so none can give it to others."""
        return is_sharded(self._of(torch.optim.Optimizer))

    def _prebuild(self, world: World) -> None:
        """Build what depends on the world, without the state of before: another one comes."""
        self._built, self._loaded = {}, {}
        self._is_broken = self._position != (0, 0)  # Until that is there.
        self._build(world)
        self._is_prebuilt = True

    def _make_room(self) -> None:
        """Have a place for each tensor of a sharded state that is going to be loaded."""
        make_room(self._of(torch.optim.Optimizer))

    def _leave(self) -> None:
        """Train was left, in whatever way; nothing that is needed as a source is dropped."""
        self._guard.disarm()
        self._watch = None
        self._thread = None

    def _settle_back(self) -> None:
        """Go back to the last commit, if this rank can; afterwards `_is_clean` is final.

        May be done again, and must be done before `_tree`.
        """
        self._guard.undo()
        if not self._is_broken and not self._keep.put_back():
            self._is_broken = True
        self._guard.trust()

    def _structure(self) -> tuple[str, ...]:
        """Lines that are the same on all ranks of one job."""
        lines: list[str] = []
        for name, kind in self._kinds.items():
            lines += described(name, kind, getattr(self, name, None))
        return tuple(lines)

    def _check(self, _: bool = False) -> None:
        """Raise where something cannot travel, what optimizers make in a step too, or is left."""
        objects = [name for name, kind in self._kinds.items() if kind is Kind.OBJECT]
        check_coverage(self._of(torch.optim.Optimizer), self._tree(), objects)

    def _tree(self) -> Tree:
        """The committed state, without a copy; `_settle_back` or a commit came before."""
        live = self._objects | self._loaders.named | self._built
        entries = {name: saved(value) for name, value in live.items()}
        entries |= self._values | self._loaded
        return tree.flatten("state", {**entries, "_ledgers": self._loaders.state_dict()})

    def _load(self, source: Tree, position: tuple[int, int]) -> None:
        """Take over another rank's committed state; afterwards clean, and at that position."""
        entries = tree.unflatten(source)
        self._is_broken = True
        self._loaders.load_state_dict(entries.pop("_ledgers"))
        self._keep.forget()
        self._loaded = {}
        for name, state in entries.items():
            if name in self._builders and not self._is_prebuilt:
                self._loaded[name] = state
            elif name in self._built:
                load(self._built[name], state)
            elif name in self._values:
                self._values[name] = load(self._values[name], state)
            else:
                load((self._objects | self._loaders.named)[name], state)
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
        """Make what is live the committed state."""
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
                self._tree()  # It knows the path of what cannot travel.
            raise
        self._keep.copy(kept)
        self._loaders.commit(epoch if epoch > self._epoch else None, is_waiting=is_waiting)
        self.__dict__.update(_step=step, _epoch=epoch)  # As `__setattr__` would, without a call.
        self._guard.end_commit()
        self._reseed()

    def _reseed(self) -> None:
        if self._seed_epoch != self._epoch:
            assert self._world is not None
            self._seed_epoch = self._epoch
            self._seed_prefix = rng.mix(self._seed, self._world.rank, self._epoch)
        rng.reseed(self._seed_prefix, self._step)

    def _build(self, world: World) -> None:
        """Call the builders; what they return gets the state of what they returned before."""
        if self._is_prebuilt:
            self._is_prebuilt = False
            return
        loaders = {n: v for n, v in self._loaders.named.items() if n in self._builders}
        before = {name: saved(value) for name, value in (self._built | loaders).items()}
        # Kept until all are built: a builder may be interrupted too.
        self._loaded = before | self._loaded
        self._built = {}
        rng.reseed(rng.mix(self._seed, _NO_RANK, self._epoch), self._step)
        for name, builder in self._builders.items():
            value = builder(world)
            kind = kind_of(name, value, is_built=True)
            if kind is Kind.LOADER:
                self._loaders.add(name, value)
            elif kind in _ENTRIES:
                self._built[name] = value
            else:
                raise CallError(
                    f"The function State({name}=...) returned a {type(value).__name__}, which has "
                    "no state to bring over: build it inside train."
                )
            if name in self._loaded:
                load(value, self._loaded[name])
        self._loaded = {}

    def _bind(self) -> None:
        """Find out who owns what."""
        owned = Ownership.of(self._objects | self._built)
        self._keep.bind(
            self._values, owned.others, owned.modules, tuple(owned.optimizers), owned.wrappers
        )
        self._guard.bind(owned.optimizers, owned.names)
        self._optimizers: tuple[torch.optim.Optimizer, ...] = self._guard.optimizers
        self._groups = BuiltGroups(self._optimizers)

    def _of(self, kind: type) -> list[Any]:
        every = (self._objects | self._built).values()
        return [value for value in every if isinstance(value, kind)]

    def _modules(self) -> dict[str, torch.nn.Module]:
        """Those that are not built anew with each world."""
        return {
            name: unwrapped(value)
            for name, value in self._objects.items()
            if isinstance(value, torch.nn.Module)
        }
