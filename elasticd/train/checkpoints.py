"""What a run does about checkpoints: it restores if no rank has a state, and saves what is
committed.

What talks to a keeper, and what restores, is imported where it may be needed: it is a fifth of what
`elasticd.run` needs. That is before the first step: a failure must read no file.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.errors import Unavailable
from elasticd.tensors.mesh_cache import forget_meshes
from elasticd.tensors.tensor_spec import alike
from elasticd.tensors.tree import Tree
from elasticd.train.introspection.time_spent import SecondsSpent
from elasticd.train.process_group.group import Group
from elasticd.train.session.final_save import FinalSave
from elasticd.train.settings import WorkerSettings
from elasticd.train.shards.local_shards import Remnant, Remnants
from elasticd.train.shards.shard_cover import ShardCover
from elasticd.train.shards.shard_survey import survey
from elasticd.train.state.state_core import StateCore
from elasticd.train.sync.newest_state import SourceDecision, StateLost
from elasticd.train.world import World

if TYPE_CHECKING:
    from elasticd.train.restore.restore_result import RestoreResult
    from elasticd.train.save.keeper_connection import Keeper
    from elasticd.train.save.snapshot_taker import SnapshotTaker

__all__ = ["Checkpoints", "NothingSaved"]


class KeeperMissing(Unavailable):
    """The keeper does not answer, so nobody knows what is to be restored; it may be there at the
    next try.
    """

    is_plain = True


class NothingSaved(StateLost):
    """A state was lost before its first snapshot. All ranks raise it, and new processes begin anew:
    it is the same on each, and yet a restart helps.
    """

    is_plain = True
    has_lost_state = True


class PausableSession(Protocol):
    """The methods of a session that checkpoints need."""

    spent: SecondsSpent

    def pause(self, why: str | None) -> None: ...
    def is_stale(self, generation: int) -> bool: ...
    @property
    def final_save(self) -> FinalSave | None: ...


class Checkpoints:
    """The checkpoints of a whole run; without `--checkpoint` only what the ranks have themselves is
    restored.
    """

    _saving: "SnapshotTaker | None"
    _keeper: "Keeper | None"

    def __init__(self, setting: WorkerSettings, state: StateCore, session: PausableSession) -> None:
        self._state, self._session = state, session
        self._saving = None
        self._is_sharded = False
        """The state was, in whatever generation: what is built now need not be all of it."""
        self._remnants = Remnants()
        self._remnant: Remnant | None = None
        self._survivors: ShardCover | None = None
        self._origin: Snapshot | None = None
        self._world: World | None = None
        self._restored_step = -1
        self._is_last_taken = False
        """The snapshot of the step after which all ranks left this generation."""
        self._keeper = None
        if setting.keeper:
            from elasticd.train.save.keeper_connection import Keeper
            from elasticd.train.save.snapshot_taker import SnapshotTaker

            _import_restore()
            self._keeper = Keeper(setting.keeper)
            self._saving = SnapshotTaker(
                self._keeper.connect,
                setting.every,
                setting.copy,
                setting.upload_every,
                mirror_bytes_per_s=setting.mirror_bytes_per_s,
            )
            self._saving.spent = session.spent

    @property
    def report(self) -> dict[str, Any]:
        """Return what other ranks must know (`RankReport`)."""
        saving = self._saving
        return {
            "run": self._run,
            "can_restore": saving is not None,
            "is_sharded": self._is_sharded,
            "snapshot_interval": saving.interval if saving is not None else 1,
        }

    def collect(self) -> None:
        """Keep what the generation before left of a sharded state, once that has been rolled back.

        Exceptions from here come from the script's own objects.
        """
        self._is_sharded |= self._state.is_sharded
        self._remnants.collect(self._state, self.is_replicated, self._run)

    def survey(self, group: Group, decision: SourceDecision) -> None:
        """Find out whether all ranks together have a state that none of them has alone."""
        self._survivors = self._remnant = None
        if decision.is_fresh:
            is_stale = self._staleness(group.generation)
            self._survivors = survey(group, self._remnants, is_stale)
        found = self._survivors
        self._remnant = self._remnants.keep(found.label if found is not None else None)

    def must_restore(self, decision: SourceDecision) -> bool:
        """Return whether no rank has a state, and it is to be restored or begun by `restore`."""
        has_source = self._saving is not None or self._survivors is not None
        return has_source and decision.is_fresh

    def build(self, decision: SourceDecision, world: World) -> None:
        """Build the objects into which a state is restored, if it must be.

        Exceptions from here come from the script's own functions.

        Raises: CannotRestore: a part of a sharded state is lost, and there is no checkpoint.
        """
        forget_meshes()
        self._remnants.invalidate()
        self._origin = None
        # A restore that another fault interrupted has built for a world that never trained.
        self._state.is_prebuilt = False
        if self._saving is None and self._survivors is None:
            if self._is_sharded and not self._state.is_new:
                from elasticd.train.restore.model_match import CannotRestore

                raise CannotRestore(
                    "The state is sharded, and a part of it was lost with its rank: start the job "
                    "with --checkpoint URL, from where it is restored."
                )
            return
        if self._saving is not None:
            self._saving.run = max(self._saving.run, decision.run)
        if self.must_restore(decision):
            self._state.prebuild(world)

    def restore(self, group: Group) -> "RestoreResult":
        """Restore a state that no rank has; if nothing was saved, rank 0's is to be fetched.

        Raises: KeeperMissing: the keeper does not answer. StateLost: the state of every rank is
        lost. NothingSaved: the same, and no checkpoint has been saved yet.
        """
        from elasticd.train.restore.keeper_port import NoKeeper
        from elasticd.train.restore.restore import SurvivingState, restore

        saving, found = self._saving, self._survivors
        alive = SurvivingState(found, self._remnant, self._run) if found is not None else None
        is_stale = self._staleness(group.generation)
        self._await_keeper(is_awaited=True)
        try:
            client = saving.present_client() if saving is not None else NoKeeper()
            restored = restore(group, client, self._state, is_stale, alive)
        except Unavailable as exc:
            raise KeeperMissing(str(exc)) from exc
        self._await_keeper(is_awaited=False)
        self._origin = restored.snapshot
        if saving is not None:
            saving.run = restored.run
            step = restored.snapshot.step if restored.snapshot else -1
            saving.restored(step, restored.place, generation=group.generation)
            if restored.place == "storage":
                self._restored_step = saving.saved_step
        if restored.snapshot is None and not self._state.is_clean:
            lost = "No rank has a state to go on from, and there is no checkpoint"
            if saving is None:
                raise StateLost(f"{lost}: start it again.")
            raise NothingSaved(f"{lost} yet: the training begins anew.")
        if restored.snapshot is None:
            # The training begins with rank 0's state, and what depends on it is built again. Of a
            # sharded entry no rank may take another's part.
            self._state.built, self._state.is_prebuilt = {}, False
            forget_meshes()
        return restored

    def begin(
        self, group: Group, world: World, decision: SourceDecision, *, is_opened: bool
    ) -> Callable[[int], None] | None:
        """Save what this generation commits: return the function to call at each step."""
        if self._state.is_sharded:  # Without a checkpoint, too: out of the ranks' own memory.
            _import_restore()
        self._remnants.enter(world.generation, self._state.position, self._origin)
        if self._saving is None:
            return self._committed_first if self._remnants.has_any else None
        self._world, self._is_last_taken = world, False
        self._saving.begin(
            group.store,
            self._state,
            self.is_replicated,
            rank=world.rank,
            generation=world.generation,
            nodes=decision.nodes,
            is_opened=is_opened,
            is_stale=self._staleness(world.generation),
            interval=decision.snapshot_interval,
        )
        return self._committed_first if self._remnants.has_any else self._saving.committed

    def end(self, *, is_agreed: bool = False) -> None:
        """Take note that the generation is over; `is_agreed`: all ranks leave it after this very
        step.

        No rank can give a sharded state to others. So that a planned change loses nothing, they go
        on from that step out of the memory of the nodes. At the job's end the last step is saved
        too.
        """
        if self._saving is None:
            return
        is_last_wanted = self._state.is_sharded or self._session.final_save is not None
        if is_agreed and self._state.is_clean and is_last_wanted:
            self._saving.take_last(self._state.position[0])
            self._is_last_taken = True
        self._saving.end()

    def wait_for_final_save(self) -> None:
        """Wait until the state is durable, if the generation was left for the end of the job."""
        final_save, saving, world = self._session.final_save, self._saving, self._world
        if final_save is None or saving is None or world is None:
            return
        step = self._state.position[0]
        final_save.wait_until_durable(
            saving,
            generation=world.generation,
            step=step,
            is_agreed=self._is_last_taken,
            restored_step=self._restored_step,
            is_wanted=lambda: self._session.final_save is final_save,
        )
        if world.rank == 0:
            saving.say(f"The job was {final_save.sentence(step)}.")

    def finish(self, generation: int) -> None:
        """Make the last state durable, so that the same job called again has nothing to do."""
        saving, guard = self._saving, self._state.guard
        if saving is None:
            return
        from elasticd.train.save.snapshot_taker import FINAL_LIMIT_S

        is_stale = self._staleness(generation)
        self._await_keeper(is_awaited=True)
        self._session.pause("the last state is being saved")
        step = self._state.position[0]
        try:
            if not saving.has_saved(step) and (guard.is_dirty or guard.monitor.differs()):
                # With the position of the last commit it would be the state of no step.
                saving.say(
                    f"The parameters were changed after the last commit (step {step}), so they are "
                    "in no checkpoint: call state.commit() before train returns."
                )
                saving.wait(FINAL_LIMIT_S, lambda: not is_stale())
            else:
                saving.finish(lambda: not is_stale())
        finally:
            self._session.pause(None)

    @property
    def _run(self) -> int:
        return self._saving.run if self._saving is not None else 0

    def is_replicated(self, tree: Tree) -> list[bool]:
        """Return for each tensor whether it is the same on all ranks that have the state."""
        return alike(tree, self._state.guard.optimizers)

    def _committed_first(self, step: int) -> None:
        """Commit first what an interrupted rank would otherwise need once more from the generation
        before.
        """
        self._remnants.keep(None)
        self._remnant = None
        if self._saving is not None:
            self._saving.committed(step)

    def _await_keeper(self, *, is_awaited: bool) -> None:
        """Let the next connection take as long as a keeper takes to start, or not."""
        if self._keeper is not None:
            self._keeper.is_awaited = is_awaited

    def _staleness(self, generation: int) -> Callable[[], bool]:
        return lambda: self._session.is_stale(generation)


def _import_restore() -> None:
    for name in ("keeper_port", "restore"):
        import_module(f"elasticd.train.restore.{name}")
