"""The working parts of a `State`, for `run` and the rooms below it; a script has the `State`.

Entries are objects that can save and load themselves, plain values, and functions of `world` that
build such an object. Between two commits a rank may be interrupted anywhere. Three parts bring it
back to the last commit: the step guard restores what optimizers own, the commit copy all else that
changes, and each loader its position. So after `rollback` the live state is the committed one,
and may be sent as it is.
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
from elasticd.train.data.ledger import DataTotals
from elasticd.train.data.state_loaders import Loaders
from elasticd.train.interrupt import uninterruptible
from elasticd.train.optimizer.added_groups import BuiltGroups
from elasticd.train.optimizer.nonfinite_gradient import OnNan
from elasticd.train.optimizer.optimizer_coverage import check_coverage
from elasticd.train.optimizer.param_groups import groups_kept
from elasticd.train.optimizer.sharded_optimizer import any_rank, barrier, is_sharded, make_room
from elasticd.train.optimizer.step_guard import StepGuard
from elasticd.train.scalars.commit_scalars import CommitScalars, Tensors
from elasticd.train.session.step_session import EpochProgress, Pauses, StepSession
from elasticd.train.state import rng, state_dict
from elasticd.train.state.commit_copy import CommitCopy
from elasticd.train.state.entry import StateEntries, StateEntryKind, kind_of
from elasticd.train.state.optimizer_load import is_off_host, kept_on_host, optimizers_of
from elasticd.train.state.ownership import Ownership, TiedEntries
from elasticd.train.state.script_hooks import ScriptHooks, drop_gradients
from elasticd.train.world import World

__all__ = ["StateCore"]

HOSTED = "_hosted"
"""What a state has beside its entries if an optimizer keeps some of its state on the host."""


class StateCore:
    """The entries of one state, how far they are, and the way back to the last commit."""

    def __init__(self, entries: dict[str, Any], unnamed: tuple[object, ...], seed: int) -> None:
        """Take the entries by their names.

        Raises: CallError: an entry cannot survive, or has no name.
        """
        self._random = rng.StepSeed(seed)
        given = StateEntries.of(entries, unnamed)
        self.kinds, self.values = given.kinds, given.values
        self.builders, self.objects = given.builders, given.objects
        self._checks: list[Check] = [self.check]  # of the next commit
        self.loaders = Loaders(self._checks)
        for name, value in given.loaders.items():
            self.loaders.add(name, value)
        self.built: dict[str, Any] = {}
        self._loaded: dict[str, Any] = {}
        """The states of entries that are not built yet."""
        self._on_host: dict[str, Any] = {}
        """What optimizers among them keep on the host."""
        self._off_host: dict[str, tuple[torch.optim.Optimizer, ...]] | None = None
        """The optimizers of each entry that have a parameter on another device; None: not known."""
        self.is_prebuilt = False
        """True if `_build` ran ahead of `enter`, so that a state can be loaded in its place."""
        self.step = self.epoch = 0
        self.on_nan = "ignore"
        """What happens when a gradient is not finite, a word of `OnNan`."""
        self.is_new = True
        """True until the state was in a world."""
        self.is_broken = False
        """True if a commit or a load was interrupted in the middle."""
        self._session: StepSession | None = None
        self._thread: int | None = None
        self._groups = BuiltGroups(())
        self._structure = self._built_structure = tuple[str, ...]()
        self._hooks = ScriptHooks()
        self._tied = TiedEntries(self.values, self.objects)
        self._keep = CommitCopy()
        self.guard = StepGuard()
        self.commit_scalars = CommitScalars()

    # --- for `State` ------------------------------------------------------------------------------

    @property
    def seed(self) -> int:
        """The seed that was given."""
        return self._random.seed

    @property
    def homes(self) -> tuple[dict[str, Any], ...]:
        """Return the dicts in which entries stand by their names."""
        return self.objects, self.values, self.loaders.named, self.built

    @uninterruptible
    def commit(self, hist: Tensors | None, scalars: dict[str, float | torch.Tensor]) -> None:
        """End a step, see `State.commit`.

        Raises: CallError: the script calls it from another thread, or outside of `train`.
        """
        if (session := self._session) is None or threading.get_ident() != self._thread:
            session = self._inside("commit()")
        given = self.commit_scalars.checked(scalars, hist)
        self._take(self.step + 1, self.epoch + self.loaders.held)
        self.commit_scalars.set(given, self.step, hist)
        session.committed((self.step, self.epoch))
        session.check(self.step)

    def epochs(self, count: int, steps: int) -> Iterator[int]:
        """Iterate over the epochs that are left, see `State.epochs`."""
        self._inside("epochs()")
        self.loaders.expect(count, steps, count - self.epoch)
        return self._passes(count)

    @contextmanager
    @uninterruptible
    def pause(self, why: str) -> Iterator[None]:
        """Say that no step will end for a while, see `State.pause`."""
        session = self._inside("pause()")
        if self._pauses.begin(why):
            self.guard.begin_pause()
        try:
            yield
        finally:
            is_over = self._pauses.end()
        if is_over:
            session.check(self.step)

    # --- for `run` and its rooms ------------------------------------------------------------------

    @property
    def position(self) -> tuple[int, int]:
        """The steps and epochs that are committed."""
        return self.step, self.epoch

    @property
    def is_dirty(self) -> bool:
        return self.is_broken or self.guard.is_dirty

    @property
    def is_clean(self) -> bool:
        return not self.is_dirty

    @property
    def has_stepped(self) -> bool:
        """Return whether each optimizer that began its step has ended it, with no commit since."""
        return not self.is_broken and self.guard.has_stepped

    @property
    def data_totals(self) -> DataTotals:
        return self.loaders.totals or DataTotals.of(())

    @property
    def epoch_progress(self) -> EpochProgress:
        return self.loaders.epoch_progress

    def scalars(self) -> dict[str, float]:
        """Return those numbers of the last commit that are known without waiting; any thread."""
        return self.commit_scalars.known()

    def enter(self, world: World, session: StepSession) -> None:
        """Get ready for `train` in this world; the calling thread becomes the training thread."""
        self.rollback()
        self._random.enter(world.rank)
        self._thread = threading.get_ident()
        self._build(world)
        self._built_structure = state_dict.built_structure(self.built)
        if self.is_new:
            self.tree()  # An entry that cannot be sent is refused now, not in the first failure.
        self._bind()
        drop_gradients((self.objects | self.built).values(), self.values)
        self.loaders.place(world, session, self.of_kind(torch.nn.Module))
        # If this rank was dirty and got no state, the ranks have agreed that its own counts.
        self.guard.reset()
        self._keep.copy(self._keep.collect())
        self.is_new = self.is_broken = False
        every, size = self._optimizers, world.size
        self.guard.arm(session, OnNan(self.on_nan), barrier(every, size), any_rank(every, size))
        self._session, self._pauses = session, Pauses(session)
        self._random.reseed(self.epoch, self.step)

    @property
    def is_sharded(self) -> bool:
        """Return whether no rank has the whole state, so that none can give it to others."""
        return is_sharded(self.of_kind(torch.optim.Optimizer))

    def prebuild(self, world: World) -> None:
        """Build the entries that depend on the world, into which another state will be loaded."""
        self.built, self._loaded, self._on_host = {}, {}, {}
        self.is_broken = self.position != (0, 0)  # It stays so until that is loaded.
        self._build(world)
        self.is_prebuilt = True

    def make_room(self) -> None:
        """Allocate memory for each tensor of a sharded state that will be loaded."""
        make_room(self.of_kind(torch.optim.Optimizer))

    def leave(self) -> None:
        """Note that the script has left `train`; other ranks can still get the state."""
        self.guard.disarm()
        self._session = self._thread = None

    def rollback(self) -> None:
        """Go back to the last commit if this rank can; afterwards `is_clean` is final.

        The caller may repeat this, and must do it before it calls `tree`.
        """
        self.guard.undo()
        if not self.is_broken and not self._keep.put_back():
            self.is_broken = True
        self.guard.trust()

    def structure(self) -> tuple[str, ...]:
        """Return lines that must be equal on all ranks of a job: names, types and shapes."""
        every = [(name, kind, self._entry(name)) for name, kind in self.kinds.items()]
        return tuple(line for each in every for line in state_dict.described(*each))

    def check(self, _: bool = False) -> None:
        """Raise CallError if an entry cannot be sent, was changed, or lacks trained parameters."""
        self._groups.check()  # It says more exactly what is wrong.
        self._structure = state_dict.same_structure(self._structure, self.structure())
        state_dict.same_structure(
            self._built_structure, state_dict.built_structure(self.built), is_built=True
        )
        objects = [name for name, kind in self.kinds.items() if kind is StateEntryKind.OBJECT]
        check_coverage(self.of_kind(torch.optim.Optimizer), self.tree(), objects)

    def tree(self) -> Tree:
        """Return the committed state, not copied; it is called after `rollback` or a commit."""
        live = self.objects | self.loaders.named | self.built
        entries = {name: state_dict.saved(value) for name, value in live.items()}
        entries |= self.values | self._loaded | self._tied.news_of_ties()
        if on_host := self._on_host | self._hosted(live):
            entries[HOSTED] = on_host
        return tree.flatten("state", {**entries, "_ledgers": self.loaders.state_dict()})

    def retie(self, skeleton: str) -> None:
        """Let entries share their memory as in a state that will be written into them."""
        self.is_broken |= self._tied.adopt_from(skeleton)

    def load(self, source: Tree, position: tuple[int, int]) -> None:
        """Take over another rank's committed state; afterwards this rank is clean at `position`."""
        entries = tree.unflatten(source)
        self.is_broken = True
        self.loaders.load_state_dict(entries.pop("_ledgers"))
        self._keep.forget()
        self._tied.adopt(*(ties := [entries.pop(key, None) for key in TiedEntries.KEYS]))
        on_host = entries.pop(HOSTED, {})  # Nothing of that, or a state of an older version.
        later = () if self.is_prebuilt else [name for name in entries if name in self.builders]
        self._loaded = {name: entries.pop(name) for name in later}
        self._on_host = {name: on_host[name] for name in later if name in on_host}
        homes = self.objects | self.loaders.named | self.built | self.values
        loaded = {
            name: state_dict.load(homes[name], each, source.is_placed, on_host.get(name, ()))
            for name, each in entries.items()
            if name in homes or not name.startswith("_")  # A newer version says it beside entries.
        }
        self.values.update((name, loaded[name]) for name in self.values.keys() & loaded.keys())
        self._tied.adopt(*ties)  # What is new here had no place before.
        if not self.is_prebuilt:
            self.built = {}
        self.step, self.epoch = position
        self.guard.reset()
        self.is_broken = self.is_new = False

    def of_kind(self, kind: type) -> list[Any]:
        """Return the entries of this class, but for loaders and plain values."""
        return [each for each in (self.objects | self.built).values() if isinstance(each, kind)]

    def modules(self) -> dict[str, torch.nn.Module]:
        """Return the modules that are not built again for each world, by their names."""
        return self._tied.modules

    # --- private ----------------------------------------------------------------------------------

    def _inside(self, what: str) -> StepSession:
        if self._session is None:
            raise CallError(
                f"{what} was called outside of elasticd.run: call it in train(state, world), which "
                "elasticd.run(train, state) calls."
            )
        if threading.get_ident() != self._thread:
            raise CallError(f"{what} was called from another thread: call it from that of train.")
        return self._session

    @uninterruptible
    def _passes(self, count: int) -> Iterator[int]:
        while self.epoch + self.loaders.held < count:
            yield self.loaders.begin_epoch(self.epoch + self.loaders.held, self.step)
            session = self._inside("epochs()")
            epoch = self.epoch + self.loaders.held + 1
            if epoch < count and self._holds(epoch):
                self._random.reseed(epoch, self.step)
            else:
                self._take(self.step, epoch)
                session.committed((self.step, self.epoch))
            session.check(self.step)

    def _holds(self, epoch: int) -> bool:
        """Begin an epoch without a commit, if gradients of samples that none has counted wait."""
        waits = self.loaders.has_uncounted and self._keep.gradients.is_passed()
        if not waits or self.is_dirty or self._keep.has_updated_scaler():
            return False  # The samples of a step count, and those of one that was left out.
        is_other = self.guard.monitor.has_changed(is_close=True)
        return self.loaders.hold_epoch(epoch, is_other=is_other)

    def _take(self, step: int, epoch: int) -> None:
        """Make the live state the committed one.

        This is the path of an ordinary step. It compares a few things that were bound when the
        world was entered, and enters few files, because each file has left the CPU's caches since
        the last commit. Special cases take another path, in other functions.
        """
        if step & (step - 1) == 0:  # Ever more seldom: it asks all entries for their state.
            self.check()
        if self._checks:  # None of a loop that has been found to be in order.
            has_stepped = self.has_stepped or self._keep.has_updated_scaler()
            self._checks[:] = [check for check in self._checks if check(has_stepped)]
        groups = self._keep.groups(self._groups.check)
        self.guard.begin_commit(is_epoch=epoch != self.epoch)  # Dirty until `end_commit`.
        try:
            is_waiting = self.guard.is_waiting and not self._keep.has_updated_scaler()
            kept = self._keep.collect(groups)
        except BaseException as exc:
            self.guard.cancel_commit()
            if isinstance(exc, CallError | RecursionError):
                self.tree()  # Its error names the path of what cannot be sent.
            raise
        self._keep.copy(kept, is_waiting=is_waiting)
        if epoch != self.epoch or is_waiting:
            is_end = epoch > self.epoch + self.loaders.held
            self.loaders.commit(epoch if is_end else None, is_waiting=is_waiting)
        else:  # The same for each loader without an epoch that ends, in place.
            for loader, ledger in self.loaders.rows:
                if loader.ahead.is_looking:
                    loader.ahead.commit()
                cursor = loader.cursor
                cursor.committed, spans, cursor.spans = cursor.pending, cursor.spans, []
                ledger.take(spans)
        self.step, self.epoch = step, epoch
        self.guard.end_commit()  # Clean: a rank that is interrupted now goes back to here.
        self._random.reseed(epoch, step)

    def _build(self, world: World) -> None:
        """Call the builders; each result gets the state of the result before."""
        if self.is_prebuilt:
            self.is_prebuilt = False
            return
        self._hooks.take_off()
        self._hooks.note(self.objects.values())
        loaders = {n: v for n, v in self.loaders.named.items() if n in self.builders}
        before = {name: state_dict.saved(value) for name, value in (self.built | loaders).items()}
        self._on_host |= self._hosted(self.built)
        # The states stay until all are built: a builder may be interrupted, too.
        self._loaded = before | self._loaded
        self.built = {}
        self._random.reseed_alike(self.epoch, self.step)
        with groups_kept(self.of_kind(torch.optim.Optimizer) if self._loaded else ()):
            for name, builder in self.builders.items():
                value = builder(world)
                if kind_of(name, value, is_built=True) is StateEntryKind.LOADER:
                    self.loaders.add(name, value)
                else:
                    self.built[name] = value
        for name in filter(self._loaded.__contains__, self.builders):
            state_dict.load_built(
                name, self._entry(name), self._loaded[name], self._on_host.get(name, ())
            )
        self._loaded, self._on_host = {}, {}

    def _bind(self) -> None:
        """Sort the entries into those that optimizers own, and those copied at each commit."""
        owned = Ownership.of(self.objects | self.built)
        self._keep.bind(
            self.values, owned.others, owned.modules, tuple(owned.optimizers), owned.wrappers
        )
        self._tied.bind()
        self.guard.bind(owned.optimizers, owned.names)
        self._optimizers: tuple[torch.optim.Optimizer, ...] = self.guard.optimizers
        self._groups = BuiltGroups(self._optimizers)
        self._keep.gradients.bind(self._optimizers)
        every = {name: optimizers_of(each) for name, each in (self.objects | self.built).items()}
        self._off_host = {name: each for name, each in every.items() if any(map(is_off_host, each))}

    def _hosted(self, entries: dict[str, Any]) -> dict[str, Any]:
        """Return the state that these entries' optimizers keep on the host, for other ranks."""
        every = self._off_host
        if every is None:
            every = {name: optimizers_of(each) for name, each in entries.items()}
        found = {name: kept_on_host(each) for name, each in every.items() if name in entries}
        return {name: each for name, each in found.items() if each}

    def _entry(self, name: str) -> Any:
        """Return the entry of this name; None if it is not built yet."""
        return next((home[name] for home in self.homes if name in home), None)
