"""What a keeper is told when it starts, and how its parts are put together."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.checkpoint.commit import Committer
from elasticd.checkpoint.keeper.finder import Finder
from elasticd.checkpoint.keeper.housekeeping import Housekeeping
from elasticd.checkpoint.keeper.saver import Saver
from elasticd.checkpoint.keeper.service import Service
from elasticd.checkpoint.keeper.vault import Vault
from elasticd.checkpoint.location import open_bucket
from elasticd.checkpoint.log import Log
from elasticd.checkpoint.retention import Retention
from elasticd.checkpoint.retry import Policy

__all__ = ["Keeping", "Kept", "keep"]

START_LIMIT_S = 20.0
"""How long a restore asks a storage that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    url: str
    options: Mapping[str, object] = field(default_factory=dict)
    """For the file system; secrets are named, not given."""
    job: str
    """Whose checkpoints these are, the same over all runs."""
    uid: str
    """Of this run."""
    socket: str
    """Name of the abstract socket to listen on."""
    parallel: int = 8
    """Requests at a time."""
    timeout_s: float = 120.0
    """How long a request that fails is tried again."""
    niceness: int = 5
    """Uploading must not take processor time from training."""
    linger_s: float = 60.0
    """How long to go on with what is under way when the agent has gone."""
    retention: Retention = field(default_factory=Retention)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    service: Service
    saver: Saver


def keep(keeping: Keeping) -> Kept:
    """Build a keeper's parts; connects to nothing yet.

    Raises:
        CallError, EnvironmentProblem: what is missing here.
    """
    options = dict(keeping.options)
    bucket = open_bucket(keeping.url, options, policy=Policy(limit_s=keeping.timeout_s))
    committer = Committer(bucket=bucket, log=Log(bucket), uid=keeping.uid, job=keeping.job)
    vault = Vault()
    housekeeping = Housekeeping(bucket, keeping.retention)
    saver = Saver(
        bucket, committer, vault, parallel=keeping.parallel, committed=housekeeping.committed
    )
    # Whoever waits for a restore is a person, or a job that may be told at once.
    prompt = Policy(limit_s=min(START_LIMIT_S, keeping.timeout_s))
    finder = Finder(
        open_bucket(keeping.url, options, policy=prompt), committer, parallel=keeping.parallel
    )
    service = Service(vault=vault, saver=saver, finder=finder, job=keeping.job, uid=keeping.uid)
    return Kept(service=service, saver=saver)
