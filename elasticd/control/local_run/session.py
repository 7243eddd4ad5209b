"""One job followed in the foreground: its news, its output, Ctrl-C, and its end.

The loop has one owner, the main thread. A signal handler only counts the signal and wakes the loop.
At the second signal the handler itself kills the agents of this machine, so that processes end even
if the main thread hangs in a call.
"""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from elasticd.control import jobs
from elasticd.control.follow import EtcdAway, Follower, JobEnded, News, WorldFormed
from elasticd.control.local_run.last_checkpoint import CheckpointAwaited, CheckpointLost
from elasticd.control.local_run.launch import Agents
from elasticd.control.logs.output import Tail
from elasticd.errors import ElasticdError, EnvironmentProblem, NotFound, Unavailable
from elasticd.records.codec import decode, encode
from elasticd.records.failure import signal_name, signal_number
from elasticd.records.ids import NodeId
from elasticd.records.job import UNSERVED_LIMIT_S, EndedJob, JobSpec, JobStatus
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.records.reason import Phase, Reason
from elasticd.store.api import Delete, ModifiedAt, Put, Store, Txn

__all__ = ["AgentEnded", "Interrupt", "LocalRun", "RunNews", "Stopping", "exit_code"]

WAIT_S = 0.5
AGENT_EXIT_S = 15.0
"""The time in which agents that served only this job must end after the job."""
STOP_SLACK_S = 15.0
"""The time beyond the shutdown timeout: to write the wish, to agree, and to write the end."""
SIGTERM_CODE = 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """A person asked for the end of the job with a signal."""

    signal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEnded:
    """An agent of this machine ended before the job."""

    node: NodeId
    ending: str
    words: str
    """The last line that the agent wrote for people; may be empty."""


RunNews = News | Stopping | AgentEnded | CheckpointAwaited | CheckpointLost


class Interrupt:
    """Counts the signals. It must be made before the first process is started."""

    def __init__(self) -> None:
        self.count = 0
        self.number = 0
        self.wake: Callable[[], None] = lambda: None
        self.kill: Callable[[], None] = lambda: None

    def take(self, number: int, _frame: object) -> None:
        """Handle a signal: count the first one; from the second one on, kill the agents."""
        if self.count and number == signal.SIGHUP:
            return  # The shell and the kernel each send one when a terminal goes.
        self.count += 1
        self.number = number
        if self.count > 1:
            self.kill()
        self.wake()


class LocalRun:
    def __init__(
        self,
        store: Store,
        keys: Keys,
        spec: JobSpec,
        *,
        agents: Agents | None,
        is_private: bool,
        tail: Tail | None,
        interrupt: Interrupt,
        tell: Callable[[RunNews], None],
        look_after: Callable[[], None] = lambda: None,
        trouble: Callable[[Node], str] = lambda node: "",
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up the session.

        `look_after` is called often, to restart etcd if it has ended; `trouble` asks a node which
        of its writes etcd refuses.
        """
        self._store, self._keys, self._spec = store, keys, spec
        self._agents, self._is_private, self._tail = agents, is_private, tail
        self._interrupt, self._tell, self._now_s = interrupt, tell, now_s
        self._look_after, self._trouble = look_after, trouble
        self._stop_by_s: float | None = None
        self._ended: set[NodeId] = set()
        self.nodes: dict[NodeId, Node] = {}
        """All nodes that were in a world of the job, even if they are gone."""

    def run(self) -> JobStatus:
        """Follow the job to its end; return its final status.

        Raises:
            EnvironmentProblem: the agents of this machine ended before the job.
            Unavailable: a person asked for the end of the job, and no status says that it ended.
        """
        follower = Follower(
            self._store, self._keys, self._spec, trouble=self._trouble, now_s=self._now_s
        )
        self._interrupt.wake = follower.wake
        try:
            status = self._follow(follower)
        finally:
            self._interrupt.wake = lambda: None
            follower.close()
        if self._interrupt.count < 2:
            self._wait_left(status)
        return status

    def _wait_left(self, status: JobStatus) -> None:
        """Wait for the workers: a stopped worker may use the shutdown timeout to save its state."""
        is_stopped = status.phase is Phase.STOPPED
        limit_s = AGENT_EXIT_S + (self._spec.shutdown_timeout_s if is_stopped else 0.0)
        if self._agents is not None:
            self._end_late(self._agents)
            self._agents.wait(limit_s)
        elif is_stopped and status.is_in_process and self._spec.checkpoint is not None:
            with suppress(Unavailable):
                jobs.wait_left(
                    self._store,
                    self._keys,
                    self._spec.name,
                    timeout_s=limit_s,
                    is_given_up=lambda: self._interrupt.count > 1,
                )

    def _end_late(self, agents: Agents) -> None:
        """End the agents that started after the job's end: they wait for a job of its name."""
        prefix = self._keys.members(self._spec.name)
        with suppress(Unavailable):
            members = {item.key.removeprefix(prefix) for item in self._store.list(prefix).items}
            agents.signal(signal.SIGTERM, agents.nodes - self.nodes.keys() - members)

    def _follow(self, follower: Follower) -> JobStatus:
        while True:
            news = follower.next(WAIT_S)
            if news is not None:
                self._tell(news)
            if isinstance(news, WorldFormed):
                served = {place.node for place in news.world.nodes}
                self.nodes |= {name: node for name, node in news.nodes.items() if name in served}
                if self._tail is not None:
                    self._tail.show(news.world, news.nodes)
            if isinstance(news, JobEnded):
                return news.status
            if self._interrupt.count > 1 and self._agents is not None:
                return self._given_up("Killed by a second signal.")
            if self._interrupt.count and self._stop_by_s is None:
                self._stop()
            if self._interrupt.count > 1:
                # A job of the daemons has no process here to kill: it ends by the wish alone.
                return self._given_up("Killed by a second signal.")
            if self._stop_by_s is not None and self._now_s() > self._stop_by_s:
                raise Unavailable(
                    f"Job {self._spec.name!r} was asked to stop and did not within "
                    f"{self._spec.shutdown_timeout_s + STOP_SLACK_S:g} s: see "
                    f"`elasticd status {self._spec.name}`."
                )
            if news is None:
                self._look_after()
                if self._agents is not None and self._is_abandoned(self._agents):
                    return self._abandoned(self._agents)

    def _stop(self) -> None:
        """Write the wish for the job's end; if etcd does not answer, send SIGTERM to our agents.

        With `--join` the other hosts go on, and only this host leaves. The last host ends the job.
        """
        self._stop_by_s = self._now_s() + self._spec.shutdown_timeout_s + STOP_SLACK_S
        name = signal.Signals(self._interrupt.number).name
        self._tell(Stopping(signal=name))
        try:
            if self._agents is not None and not self._is_private and self._others():
                self._agents.signal(signal.SIGTERM)
                return
            jobs.stop(
                self._store,
                self._keys,
                self._spec.name,
                why=f"{name} to elasticd run",
                uid=self._spec.uid,
                unserved_limit_s=0.0 if self._is_private else UNSERVED_LIMIT_S,
            )
        except NotFound:
            pass  # The job has just ended; the follower reports it.
        except Unavailable as exc:
            if self._agents is None:
                # The wish may have been written before the answer was lost.
                name = self._spec.name
                raise Unavailable(
                    f"{exc} Whether the job was told to stop is not known, so it may go on: "
                    f"`elasticd stop {name}` tells it again."
                ) from exc
            self._tell(EtcdAway(message=str(exc)))
            self._agents.signal(signal.SIGTERM)

    def _others(self) -> bool:
        """Return whether other hosts serve this job, too."""
        assert self._agents is not None
        prefix = self._keys.members(self._spec.name)
        names = {item.key.removeprefix(prefix) for item in self._store.list(prefix).items}
        return bool(names - self._agents.nodes)

    def _is_abandoned(self, agents: Agents) -> bool:
        """Report agents that ended; return whether too few agents are left for the job."""
        ended = agents.ended()
        least = self._spec.min_nodes if self._is_private else 1
        is_abandoned = len(agents.nodes - ended.keys()) < least
        for node in ended.keys() - self._ended:
            self._ended.add(node)
            if not self._interrupt.count:
                # The sentence that ends the job has the words.
                words = "" if is_abandoned else agents.last_words(node)
                self._tell(AgentEnded(node=node, ending=_ending(ended[node]), words=words))
        return is_abandoned

    def _abandoned(self, agents: Agents) -> JobStatus:
        """Return the job's final status; if there is none, one that says how our agents ended."""
        if (status := self._read_status()).phase.is_final:
            return status
        if self._interrupt.count:
            if self._is_private:
                return self._given_up(
                    f"{signal.Signals(self._interrupt.number).name} to elasticd run"
                )
            return self._left()
        ended = agents.ended()
        endings = ", ".join(f"{node} ({_ending(code)})" for node, code in ended.items())
        words = next(filter(None, map(agents.last_words, ended)), "")
        message = f"Too few agents are left on this machine; ended: {endings}. {words}".strip()
        if self._is_private:
            return self._given_up(message, Phase.FAILED, max(0, *ended.values()) or None)
        raise EnvironmentProblem(message)

    def _read_status(self) -> JobStatus:
        """Return the job's status; an empty one if there is none, or only another job's."""
        item = self._store.get(self._keys.status(self._spec.name))
        status = decode(JobStatus, item.value) if item is not None else JobStatus()
        return status if status.uid in ("", self._spec.uid) else JobStatus()

    def _left(self) -> JobStatus:
        """Leave the job to the other hosts; return its present status as this host's result."""
        name, status = self._spec.name, JobStatus()
        # All hosts may have left at once; then no other host can free the name.
        with suppress(ElasticdError):
            jobs.end_unserved(self._store, self._keys, name, uid=self._spec.uid)
        with suppress(ElasticdError):
            status = self._read_status()
        if status.phase.is_final:
            return status
        message = "on this host, which has left it; it goes on on the others"
        return replace(status, phase=Phase.STOPPED, reason=Reason.STOP_REQUESTED, message=message)

    def _given_up(
        self, message: str, phase: Phase = Phase.STOPPED, exit_code: int | None = None
    ) -> JobStatus:
        """Write the end of a private job if no other process can write it; return its status."""
        key = self._keys.status(self._spec.name)
        status = JobStatus()
        reason = Reason.STOP_REQUESTED if phase is Phase.STOPPED else Reason.NODE_LOST
        ended = partial(replace, phase=phase, reason=reason, message=message, exit_code=exit_code)
        try:
            item = self._store.get(key) if self._is_private else None
            if item is not None:
                status = decode(JobStatus, item.value)
            if status.phase.is_final:
                return status
            status = ended(status)
            if item is not None:
                self._store.commit(
                    Txn(
                        when=(ModifiedAt(key=key, revision=item.mod_revision),),
                        then=(
                            Put(key=key, value=encode(status)),
                            Delete(key=self._keys.active_job(self._spec.name)),
                            Put(
                                key=self._keys.ended_job(self._spec.name), value=encode(EndedJob())
                            ),
                        ),
                    )
                )
        except ElasticdError:
            status = ended(status)
        return status


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal_name(code)}"


def exit_code(status: JobStatus, interrupt: int = 0) -> int:
    """Return the exit code of `elasticd run`: the job's exit code, as a shell reports it."""
    if status.phase is Phase.SUCCEEDED:
        return 0
    if interrupt:
        return 128 + interrupt
    if status.phase is Phase.STOPPED:
        return SIGTERM_CODE
    failure = status.failure
    if failure is not None and failure.signal:
        number = signal_number(failure.signal)
        return 128 + number if 0 < number < 128 else 1
    if failure is not None and failure.exit_code:
        return failure.exit_code % 256 or 1
    return status.exit_code or 1
