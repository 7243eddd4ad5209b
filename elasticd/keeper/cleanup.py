"""Deletes checkpoints by policy after each commit, and at times what crashes left; in a thread."""

import time
from threading import Condition, Thread

from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.retention.deletion import apply_retention
from elasticd.checkpoint.retention.policy import Retention
from elasticd.checkpoint.retention.sweep import sweep
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.errors import ElasticdError
from elasticd.telemetry.log import get_logger

__all__ = ["Cleanup"]

SWEEP_S = 3600.0
"""The time between two sweeps, and the least age of what is swept: an upload may take long."""

log = get_logger()


class Cleanup:
    """Clean up for one keeper; the keeper that commits also cleans up."""

    def __init__(self, bucket: Bucket, retention: Retention) -> None:
        self._bucket, self._retention = bucket, retention
        self._changed = Condition()
        self._is_due = False
        self._swept_s = time.monotonic()
        Thread(target=self._run, name="housekeeping", daemon=True).start()

    def committed(self) -> None:
        """Take note of a commit, and have the thread look for checkpoints to delete; return at
        once.
        """
        with self._changed:
            self._is_due = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_due)
                self._is_due = False
            try:
                self._tidy()
            except ElasticdError as exc:
                # The next commit tries again; what is too much does no harm meanwhile.
                log.warning("checkpoints.not_tidied", why=str(exc))
            except Exception:
                log.exception("checkpoints.tidying_broke")

    def _tidy(self) -> None:
        # A log of its own: the saver's belongs to the saver's threads.
        removal = apply_retention(self._bucket, CommitLog(self._bucket), self._retention)
        if removal.numbers:
            log.info("checkpoints.removed", numbers=removal.numbers, objects=removal.objects)
        if time.monotonic() - self._swept_s >= SWEEP_S:
            self._swept_s = time.monotonic()
            swept = sweep(self._bucket, CommitLog(self._bucket), older_than_s=SWEEP_S)
            log.info("garbage.swept", found=str(swept)[:500])
