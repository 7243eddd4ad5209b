"""The error of a group that cannot be used any more."""

from typing import Self

from elasticd.errors import ElasticdError

__all__ = ["GroupBroken"]


class GroupBroken(ElasticdError):
    """The group cannot be formed or used any more: another generation has to follow."""

    def __init__(
        self, why: str, missing: tuple[int, ...] = (), *, is_timed_out: bool = False
    ) -> None:
        super().__init__(why)
        self.missing = missing
        """Ranks that did not come, where that is known."""
        self.is_timed_out = is_timed_out
        """Nobody said why: time ran out."""

    @classmethod
    def while_formed(
        cls, generation: int, exc: Exception, *, is_aborted: bool, is_timed_out: bool
    ) -> Self:
        """Say in a sentence what torch or the store raised while the group was formed."""
        name = f"Generation {generation}"
        if is_aborted:
            return cls(f"{name} was aborted while it was formed.", is_timed_out=is_timed_out)
        if is_timed_out and not isinstance(exc, ElasticdError):
            why = "in time: all ranks came, but not all could connect to each other."
            return cls(f"{name} was not formed {why}", is_timed_out=is_timed_out)
        message = str(exc) if isinstance(exc, ElasticdError) else str(exc).partition("\n")[0]
        return cls(f"{name} was not formed: {message or repr(exc)}", is_timed_out=is_timed_out)
