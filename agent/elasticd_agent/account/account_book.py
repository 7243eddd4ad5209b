"""The accounts of all jobs that this agent serves or served lately."""

from collections.abc import Mapping

from elasticd.goodput.cause import TimeCause
from elasticd.records.ids import JobName
from elasticd.records.job import JobSpec
from elasticd_agent.account.job_account import JobAccount

__all__ = ["AccountBook"]

KEPT_S = 600.0
"""How long a job's account can still be read after this agent has left the job."""


class AccountBook:
    """Keep the accounts by job.

    Only the owner's thread calls `of` and `left`; any thread may call the rest. If the same job
    (the same uid) is joined again, its account goes on where it stopped.
    """

    def __init__(self) -> None:
        self._accounts: Mapping[JobName, JobAccount] = {}
        self._left_s: Mapping[JobName, float] = {}

    def of(self, spec: JobSpec, now_s: float) -> JobAccount:
        """Return the account of a job that is being joined; make a new one if there is none."""
        kept = self._kept(now_s)
        account = kept.get(spec.name)
        if account is None or account.spec.uid != spec.uid:
            account = JobAccount(spec)
        others = kept.keys() - {spec.name}
        self._left_s = {job: at_s for job, at_s in self._left_s.items() if job in others}
        self._accounts = {**kept, spec.name: account}
        return account

    def left(self, job: JobName, now_s: float) -> None:
        """Take note that the job was left; its account stays for ten minutes."""
        self._left_s = {**self._left_s, job: now_s}

    def jobs(self, now_s: float) -> tuple[JobName, ...]:
        """Return the names of the jobs whose accounts can be read."""
        return tuple(sorted(self._kept(now_s)))

    def seconds(self, job: JobName, now_s: float) -> Mapping[TimeCause, float]:
        """Return a job's slot-seconds on this node by cause, up to now; they add up to the whole
        time.

        A fault that is found later may still take something back from `train`.
        """
        account = self._accounts.get(job)
        return account.account.seconds(now_s) if account is not None else {}

    def counted(self, job: JobName, now_s: float) -> Mapping[TimeCause, float]:
        """Return the slot-seconds of `seconds` without what may still be taken back: each number
        only grows.
        """
        account = self._accounts.get(job)
        return account.account.counted(now_s) if account is not None else {}

    def _kept(self, now_s: float) -> Mapping[JobName, JobAccount]:
        left_s = self._left_s
        return {
            job: account
            for job, account in self._accounts.items()
            if now_s - left_s.get(job, now_s) < KEPT_S
        }
