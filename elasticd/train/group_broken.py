"""The error of a group that cannot be used any more."""

from elasticd.errors import ElasticdError

__all__ = ["GroupBroken"]


class GroupBroken(ElasticdError):
    """The group cannot be formed or used any more: another generation has to follow."""

    def __init__(self, why: str, missing: tuple[int, ...] = (), *, is_late: bool = False) -> None:
        super().__init__(why)
        self.missing = missing
        """Ranks that did not come, where that is known."""
        self.is_late = is_late
        """Nobody said why: time ran out."""
