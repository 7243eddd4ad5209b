"""Where a job's numbers go for TensorBoard: what `--tensorboard` says."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["TensorBoardSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBoardSpec:
    """Part of a `JobSpec`; without secrets, which the nodes' environment has."""

    url: str
    folder: str
    """Of this job and those that go on with it, below the URL; what TensorBoard shows."""
    options: Mapping[str, object] = field(default_factory=dict)
    """For the file system (`--storage-options`); secrets are named, not given."""
