"""The messages of a zygote to the pool that forked it, one line each."""

from dataclasses import dataclass, field

from elasticd.channel import wire
from elasticd_agent.pool.zygote.learned_set import LearnedSet

__all__ = ["Failed", "Importing", "Ready", "unpack_word"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    """The zygote begins to import a package: if it ends now, that package is at fault."""

    package: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The zygote cannot serve, and ends."""

    why: str
    package: str = ""
    """The package at fault; empty if none is known to be."""
    learned: LearnedSet = field(default_factory=LearnedSet)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Workers can be forked from it."""

    modules: int
    import_s: float
    reads: tuple[str, ...]
    """The variables that must have the same values as when it was made."""
    learned: LearnedSet


_WORDS = {kind.__name__: kind for kind in (Importing, Failed, Ready)}


def unpack_word(line: bytes) -> Importing | Failed | Ready:
    """Read one message of the zygote.

    Raises: InvariantBroken: the line is none of these messages.
    """
    word: Importing | Failed | Ready = wire.unpack(line, _WORDS)
    return word
