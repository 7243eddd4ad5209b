"""Where a job's numbers go for TensorBoard: what `--tensorboard` says."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["TensorBoardSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBoardSpec:
    """The TensorBoard part of a `JobSpec`.

    It has no secrets; those are in the nodes' environment.
    """

    url: str
    folder: str
    """The folder of this job and those that continue it, below the URL; TensorBoard shows its
    name."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Options for the file system (`--storage-options`); secrets are named, not given."""
