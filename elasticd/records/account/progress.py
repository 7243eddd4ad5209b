"""Where a rank of a running job stands, as its agent last heard: for people, never stored."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticd.records.ids import Generation, Rank

__all__ = ["RankProgress", "newest_checkpoint_age_s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProgress:
    """The progress of one rank. Ages are as of the answer, on the agent's clock."""

    rank: Rank
    generation: Generation
    pid: int = 0
    """The process number on its node; 0 from an older agent that does not report it."""
    step: int | None = None
    """The applied steps; None if not known (restart mode, or not in `train` yet)."""
    is_told: bool = False
    """True for a script of restart mode, which makes no commits: the numbers are those that it gave
    to `elasticd.progress`."""
    epoch: int = 0
    epochs: int = 0
    """The epochs that `state.epochs` was asked for; 0 if not known."""
    steps: int = 0
    """The step at which the script said that it ends; 0 if not known."""
    consumed: int = 0
    """The samples of this epoch in applied steps, of all ranks."""
    epoch_samples: int = 0
    """The samples of one epoch; 0 if not known."""
    step_s: float = 0.0
    """The smoothed duration of a step; 0 if not known."""
    committed_ago_s: float | None = None
    """The age of the last commit that the agent saw; None if it saw none of this process."""
    why_paused: str = ""
    """The reason that was given to `state.pause`, while the pause lasts."""
    scalars: Mapping[str, float] = field(default_factory=dict)
    """What the last commit was given, where that is finite."""
    not_finite: Mapping[str, int] = field(default_factory=dict)
    """The step at which a number given to `commit` was first seen not to be finite, by name."""
    checkpoint_ago_s: float | None = None
    """The age of the newest durable checkpoint, by this node's keeper; None if there is none."""
    is_held_up: bool = False
    """True while no snapshot in memory is taken on its node until an upload is done."""
    output_ago_s: float | None = None
    """The age of the last line that the rank wrote; None if it wrote none in this generation."""
    output_free_bytes: int | None = None
    """What is left on the disk to which the rank writes; None if not known."""

    @property
    def epoch_number(self) -> int:
        """The epoch in which it is, as a person counts: 1 for the first one. 0 if not known.

        What a script of restart mode gave to `elasticd.progress` is left as it is.
        """
        if self.is_told or not (self.epoch or self.epochs):
            return self.epoch
        return min(self.epoch + 1, self.epochs or self.epoch + 1)


def newest_checkpoint_age_s(ranks: Iterable[RankProgress]) -> float | None:
    """Return the age of the newest durable checkpoint that any of their keepers knows."""
    ages = (rank.checkpoint_ago_s for rank in ranks)
    return min((age for age in ages if age is not None), default=None)
