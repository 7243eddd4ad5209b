"""A keeper's settings, and how its parts are put together."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.checkpoint.commit.committer import Committer
from elasticd.checkpoint.commit.log import Log
from elasticd.checkpoint.retention.policy import Retention
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.location import open_once
from elasticd.checkpoint.storage.retry import Policy, Retrying
from elasticd.checkpoint.storage.storage_trial import Tried
from elasticd.checkpoint.storage.unusable_bucket import Unusable
from elasticd.errors import ElasticdError
from elasticd.keeper.cleanup import Housekeeping
from elasticd.keeper.finder import Finder
from elasticd.keeper.memory.vault import Vault
from elasticd.keeper.metrics import Metrics
from elasticd.keeper.mirror.receiver import Receiver
from elasticd.keeper.mirror.sender import Sender
from elasticd.keeper.saver import Saver
from elasticd.keeper.service import Service

__all__ = ["Keeping", "Kept", "keep"]

START_LIMIT_S = 20.0
"""How long a restore asks a storage that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    url: str
    options: Mapping[str, object] = field(default_factory=dict)
    """Options for the file system; secrets are named, not given."""
    job: str
    """The job that owns the checkpoints, the same over all runs."""
    uid: str
    """The uid of this run."""
    socket: str
    """The name of the abstract socket on which it listens."""
    host: str = ""
    """The host at which keepers of other nodes reach this one; empty if they cannot."""
    parallel: int = 8
    """How many requests run at a time."""
    timeout_s: float = 120.0
    """How long a request that fails is tried again, in seconds."""
    niceness: int = 5
    """The niceness of uploads and deletions, which must not take CPU time from training."""
    linger_s: float = 60.0
    """How long to go on with what is under way when the agent has gone, in seconds."""
    job_name: str = ""
    """The name of the job that runs now; empty if it is that of the owner."""
    metrics_path: str = ""
    """A file for Prometheus' textfile collector, `*.prom`; empty for none."""
    retention: Retention = field(default_factory=Retention)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    service: Service
    saver: Saver
    sender: Sender

    def close(self, timeout_s: float) -> bool:
        """Let what is under way finish within a time limit; return True if no checkpoint was given
        up.
        """
        deadline_s = time.monotonic() + timeout_s
        is_saved = self.saver.close(timeout_s)
        self.sender.finish(max(0.0, deadline_s - time.monotonic()))
        self.sender.close()
        return is_saved


def keep(keeping: Keeping) -> Kept:
    """Build a keeper's parts, and begin to try the storage, since a keeper will write to it."""
    options = dict(keeping.options)
    storage = _opened(keeping.url, options)
    bucket = Retrying(storage, Policy(limit_s=keeping.timeout_s))
    committer = Committer(bucket=bucket, log=Log(bucket), uid=keeping.uid, job=keeping.job)
    vault = Vault(niceness=keeping.niceness)
    housekeeping = Housekeeping(bucket, keeping.retention)
    metrics = Metrics(keeping.job_name or keeping.job, keeping.metrics_path)
    saver = Saver(
        bucket,
        committer,
        vault,
        parallel=keeping.parallel,
        niceness=keeping.niceness,
        committed=housekeeping.committed,
        metrics=metrics,
    )
    # Whoever waits for a restore is a person, or a job that may be told at once.
    prompt = Policy(limit_s=min(START_LIMIT_S, keeping.timeout_s))
    finder = Finder(Retrying(storage, prompt), committer, parallel=keeping.parallel)
    if isinstance(storage, Tried):
        storage.say = saver.note
        storage.begin()
    own = {"job": keeping.job, "uid": keeping.uid}
    nice = keeping.niceness
    sender = Sender(**own, niceness=nice, metrics=metrics, note=saver.note)
    service = Service(
        vault=vault,
        saver=saver,
        finder=finder,
        sender=sender,
        receiver=Receiver(vault, saver.add, host=keeping.host, **own, niceness=nice),
        **own,
    )
    return Kept(service=service, saver=saver, sender=sender)


def _opened(url: str, options: dict[str, object]) -> Bucket:
    """Open a bucket; one that cannot be used here answers every call with the reason."""
    try:
        return open_once(url, options)
    except ElasticdError as exc:
        return Unusable(url, exc)
