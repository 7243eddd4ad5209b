"""A keeper's settings, and how its parts are put together."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.checkpoint.commit.committer import Committer
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.retention.policy import Retention
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.location import open_once
from elasticd.checkpoint.storage.retry import RetryingBucket, RetryPolicy
from elasticd.checkpoint.storage.storage_probe import ProbedBucket
from elasticd.checkpoint.storage.unusable_bucket import UnusableBucket
from elasticd.errors import ElasticdError
from elasticd.keeper.checkpoint_finder import CheckpointFinder
from elasticd.keeper.cleanup import Cleanup
from elasticd.keeper.memory.share_memory import ShareMemory
from elasticd.keeper.metrics import Metrics
from elasticd.keeper.mirror.pacing import SendPacing
from elasticd.keeper.mirror.receiver import MirrorReceiver
from elasticd.keeper.mirror.sender import MirrorSender
from elasticd.keeper.saver import Saver
from elasticd.keeper.service import Service

__all__ = ["KeeperSettings", "KeeperParts", "build_keeper"]

LEAVE_LIMIT_S = 5.0
"""How long workers may take to leave once their agent or their job has ended."""
START_LIMIT_S = 20.0
"""How long a restore asks a storage that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperSettings:
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
    mirror_bytes_per_s: int = 0
    """How many bytes of snapshots it sends to the next node in a second at most; 0: any."""
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
class KeeperParts:
    service: Service
    saver: Saver
    sender: MirrorSender

    def close(self, timeout_s: float) -> bool:
        """Finish the saves under way within a time limit; return True if no checkpoint was given
        up.
        """
        deadline_s = time.monotonic() + timeout_s
        # A script may end right after its last save, before a thread here has read of it.
        self.service.wait_left(min(LEAVE_LIMIT_S, timeout_s))
        is_saved = self.saver.close(timeout_s)
        self.sender.finish(max(0.0, deadline_s - time.monotonic()))
        self.sender.close()
        return is_saved


def build_keeper(keeping: KeeperSettings, environ: Mapping[str, str]) -> KeeperParts:
    """Build a keeper's parts, and begin to try the storage, since a keeper will write to it.

    `environ` is where the options' `env:NAME` are looked up.
    """
    storage = _opened(keeping.url, keeping.options, environ)
    bucket = RetryingBucket(storage, RetryPolicy(limit_s=keeping.timeout_s))
    committer = Committer(bucket=bucket, log=CommitLog(bucket), uid=keeping.uid, job=keeping.job)
    share_memory = ShareMemory(niceness=keeping.niceness)
    housekeeping = Cleanup(bucket, keeping.retention)
    metrics = Metrics(keeping.job_name or keeping.job, keeping.metrics_path)
    saver = Saver(
        bucket,
        committer,
        share_memory,
        parallel=keeping.parallel,
        niceness=keeping.niceness,
        committed=housekeeping.committed,
        metrics=metrics,
    )
    # Whoever waits for a restore is a person, or a job that may be told at once.
    prompt = RetryPolicy(limit_s=min(START_LIMIT_S, keeping.timeout_s))
    finder = CheckpointFinder(RetryingBucket(storage, prompt), committer, parallel=keeping.parallel)
    if isinstance(storage, ProbedBucket):
        storage.say = saver.note
        storage.begin()
    own = {"job": keeping.job, "uid": keeping.uid}
    nice = keeping.niceness
    sender = MirrorSender(
        job=keeping.job,
        uid=keeping.uid,
        niceness=nice,
        metrics=metrics,
        note=saver.note,
        pacing=SendPacing(keeping.mirror_bytes_per_s),
    )
    service = Service(
        share_memory=share_memory,
        saver=saver,
        finder=finder,
        metrics=metrics,
        sender=sender,
        receiver=MirrorReceiver(share_memory, saver.add, host=keeping.host, **own, niceness=nice),
        **own,
    )
    return KeeperParts(service=service, saver=saver, sender=sender)


def _opened(url: str, options: Mapping[str, object], environ: Mapping[str, str]) -> Bucket:
    """Open a bucket; if it cannot be used here, it answers every call with the reason."""
    try:
        return open_once(url, options, environ)
    except ElasticdError as exc:
        return UnusableBucket(url, exc)
