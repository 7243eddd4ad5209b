"""Runs one job's calls on the owner's thread, so that a bug in them ends that job alone.

The agent serves other jobs on the same thread, and its end would end their workers too. A broken
rule of the rendezvous still ends the agent: its next actions might be wrong for all nodes.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from elasticd.errors import InvariantBroken
from elasticd.records.ids import JobName
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.inbox import Item

__all__ = ["JobGuard"]

log = get_logger()


class Crashing(Protocol):
    """The port to an object that serves a job and can give it up; `Runner` implements it."""

    def crash(self, why: str) -> None:
        """Leave the job for good: what is known of it cannot be trusted any more."""
        ...


class JobGuard:
    def __init__(self, post: Callable[[Item], None], runners: Mapping[JobName, Crashing]) -> None:
        """`runners` has the runners that serve jobs now; the guard reads it after an error."""
        self._post, self._runners = post, runners

    def post_for(self, job: JobName) -> Callable[[Item], None]:
        """Return a way to the owner's thread on which an item of this job is guarded."""
        return lambda item: self._post(partial(self.run, job, item))

    def run(self, job: JobName, item: Item) -> None:
        """Run an item of one job; an error of ours ends that job alone.

        Raises: InvariantBroken: a rule of the rendezvous was broken.
        """
        try:
            item()
        except InvariantBroken:
            raise
        except Exception as exc:
            log.exception("job.crashed", job=job)
            runner = self._runners.get(job)
            if runner is not None:
                runner.crash(f"an internal error of elasticd ({type(exc).__name__}: {exc})")
