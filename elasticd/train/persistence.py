"""What a run does about checkpoints: restore where nobody has a state, save what is committed."""

from collections.abc import Callable
from typing import Any, Protocol

from elasticd.errors import Unavailable
from elasticd.train.agree import Decision, StateLost
from elasticd.train.content import alike
from elasticd.train.group import Group
from elasticd.train.keeper import Keeper
from elasticd.train.matching import CannotRestore
from elasticd.train.restoring import Restored, restore
from elasticd.train.saving import Saving
from elasticd.train.setting import Setting
from elasticd.train.state import State
from elasticd.train.world import World

__all__ = ["Persistence"]


class KeeperMissing(Unavailable):
    """Without it nobody knows what is to be restored; it may be there at the next try."""

    is_plain = True


class Session(Protocol):
    """What is used of a session."""

    def pause(self, why: str | None) -> None: ...
    def is_stale(self, generation: int) -> bool: ...


class Persistence:
    """For a whole run; does nothing where the job has no checkpoints."""

    def __init__(self, setting: Setting, state: State, session: Session) -> None:
        self._state, self._session = state, session
        self._saving: Saving | None = None
        self._keeper = Keeper(setting.keeper)
        if setting.keeper:
            self._saving = Saving(self._keeper.connect, setting.every, setting.copy)

    @property
    def report(self) -> dict[str, Any]:
        """What other ranks must know (`agree.Report`)."""
        saving = self._saving
        return {"run": saving.run if saving is not None else 0, "can_restore": saving is not None}

    def prepare(self, decision: Decision, world: World) -> bool:
        """Build what a state is to be restored into; False: somebody has it, or nothing is saved.

        What this raises the script's own functions raise.
        """
        if self._saving is None:
            if self._state._is_sharded and not self._state._is_new:
                raise CannotRestore(
                    "The state is sharded, so no rank can bring it into another world: start the "
                    "job with --checkpoint URL, from where it is restored."
                )
            return False
        self._saving.run = max(self._saving.run, decision.run)
        if decision.is_fresh:
            self._state._prebuild(world)
        return decision.is_fresh

    def restore(self, group: Group) -> Restored:
        """Bring back a state that nobody has."""
        saving = self._saving
        assert saving is not None
        is_stale = self._staleness(group.generation)
        self._keeper.is_awaited = True
        try:
            restored = restore(group, saving.client, self._state, is_stale)
        except Unavailable as exc:
            raise KeeperMissing(str(exc)) from exc
        self._keeper.is_awaited = False
        saving.run = restored.run
        saving.saved_step = restored.snapshot.step if restored.snapshot is not None else -1
        if restored.snapshot is None and not self._state._is_clean:
            raise StateLost(
                "No rank has a state to go on from, and there is no checkpoint: start it again."
            )
        return restored

    def begin(
        self, group: Group, world: World, decision: Decision, *, is_opened: bool
    ) -> Callable[[int], None] | None:
        """Save what this generation commits: return what is to be called with each step."""
        if self._saving is None:
            return None
        self._saving.begin(
            group.store,
            self._state,
            lambda tree: alike(tree, self._state._guard.optimizers),
            rank=world.rank,
            generation=world.generation,
            nodes=decision.nodes,
            is_opened=is_opened,
            is_stale=self._staleness(world.generation),
        )
        return self._saving.committed

    def end(self, *, is_agreed: bool = False) -> None:
        """The generation is over; `is_agreed`: all ranks leave it after this very step.

        What is sharded nobody can give to others. So that nothing is lost by a planned change, they
        go on from that step out of the memory of the nodes.
        """
        if self._saving is None:
            return
        if is_agreed and self._state._is_clean and self._state._is_sharded:
            self._saving.take_last(self._state._position[0])
        self._saving.end()

    def finish(self, generation: int) -> None:
        """Make the last state durable, so that the same job called again has nothing to do."""
        if self._saving is None:
            return
        is_stale = self._staleness(generation)
        self._keeper.is_awaited = True
        self._session.pause("the last state is being saved")
        try:
            self._saving.finish(lambda: not is_stale())
        finally:
            self._session.pause(None)

    def _staleness(self, generation: int) -> Callable[[], bool]:
        return lambda: self._session.is_stale(generation)
