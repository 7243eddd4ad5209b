"""Reports workers of one job that hang, and has all stacks written to files before one is killed.

The world goes on at once without a worker that this agent found to hang. A worker that only makes
no progress may wait for a worker of another node. All nodes decide this together, and each writes
down the stacks of its own workers when the next world says that one hung.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from elasticd.records.failure import Failure, returned_early
from elasticd.records.ids import Generation, JobName, NodeId
from elasticd.records.job import JobSpec
from elasticd.records.member import Stall, StallLimit
from elasticd.rendezvous import event as ev
from elasticd.telemetry.log import get_logger
from elasticd_agent.liveness.hang_detector import Frozen, Verdict
from elasticd_agent.liveness.monitor import WorkerMonitor
from elasticd_agent.liveness.progress_timeout import Resumed, Stalled
from elasticd_agent.liveness.stack_dump import stacks_path
from elasticd_agent.output_monitor.output_monitor import OutputLimits, OutputMonitor
from elasticd_agent.output_monitor.silence import Heard, Silent
from elasticd_agent.output_monitor.stdout_copy import JobForwarding
from elasticd_agent.workers.worker_process import WorkerProcess, hang_of, standing_of

__all__ = ["HangReporter", "is_final", "output_limits"]

log = get_logger()


def is_final(verdict: Verdict) -> bool:
    """Return whether the verdict alone condemns the worker."""
    return isinstance(verdict, Frozen) or (
        isinstance(verdict, Stalled) and verdict.limit is StallLimit.PROGRESS
    )


def output_limits(spec: JobSpec) -> OutputLimits:
    """Return what a job wants of its output."""
    return OutputLimits(silence_s=spec.output_timeout_s, room_bytes=spec.log_max_bytes)


class HangReporter:
    """Handle the hung workers of one job on this node. All methods run on the owner's thread.

    `failure` describes how a killed worker ended, and `kill` ends one. `feed` takes what is found
    in the output, which `outputs` watches for `output`. `has_steps` says whether the steps of a
    worker are known, so that it does not matter what it writes.
    """

    def __init__(
        self,
        monitor: WorkerMonitor,
        post: Callable[[Callable[[], None]], None],
        stacks: tuple[Path, JobName, NodeId],
        processes: Mapping[str, WorkerProcess],
        *,
        failure: Callable[[str], Failure],
        kill: Callable[[str], None],
        feed: Callable[[ev.Event], None] = lambda event: None,
        output: OutputLimits | None = None,
        has_steps: Callable[[int], bool] = lambda pid: True,
        steps_told: Callable[[int], int] = lambda pid: 0,
        forwarding: JobForwarding | None = None,
    ) -> None:
        self._monitor, self._post = monitor, post
        self._run_folder, self._job, self._node = stacks
        self._processes = processes
        self._failure, self._kill = failure, kill
        self._examined = Generation(0)
        self._feed = feed
        self._has_steps = has_steps
        self.outputs = OutputMonitor(
            output or OutputLimits(),
            lambda news: post(partial(self._judge_output, news)),
            steps_told,
            forwarding,
        )

    def judged(self, name: str, verdict: Verdict) -> ev.Event:
        """Act on a verdict about this worker; return the event for the core."""
        process = self._processes[name]
        slot, nonce = process.slot, process.nonce
        if isinstance(verdict, Resumed):
            return ev.WorkerResumed(slot=slot, nonce=nonce)
        if isinstance(verdict, Frozen) and not verdict.has_run:
            return self._stopped_at_start(name, process, verdict.why)
        if isinstance(verdict, Frozen) or verdict.has_returned or verdict.is_waited_for:
            return self._hung(name, process, verdict)
        # Everybody here waits, perhaps for somebody elsewhere: that is for all to decide.
        if verdict.limit is StallLimit.PROGRESS:
            log.warning(
                "worker.stalled", rank=process.rank, step=verdict.step, collective=verdict.sequence
            )
        stall = Stall(
            slot=slot,
            nonce=nonce,
            generation=verdict.generation,
            step=verdict.step,
            sequence=verdict.sequence,
            limit=verdict.limit,
            is_in_step=verdict.is_in_step,
            is_in_collective=verdict.is_in_collective,
            why=verdict.why,
            stacks_path=str(self._path(process.generation)),
        )
        return ev.WorkerStalled(stall=stall)

    def _judge_output(self, news: Silent | Heard) -> None:
        """Report to the core a worker that writes nothing, or writes again; in restart
        mode alone.
        """
        process = next((p for p in self._processes.values() if p.pid == news.pid), None)
        if process is None or not process.generation or self._has_steps(news.pid):
            return
        slot, nonce = process.slot, process.nonce
        if isinstance(news, Heard):
            self._feed(ev.WorkerResumed(slot=slot, nonce=nonce))
            return
        log.info("worker.silent", rank=process.rank, seconds=round(news.since_s))
        stall = Stall(
            slot=slot,
            nonce=nonce,
            generation=process.generation,
            step=0,
            sequence=0,
            why=f"No output for {news.since_s:.0f} s.",
            stacks_path=str(self._path(process.generation)),
        )
        self._feed(ev.WorkerStalled(stall=stall))

    def explain(self, generation: Generation, culprit: Failure | None) -> None:
        """Write down the stacks of our workers of this generation, since one hung here or
        elsewhere.

        They are asked at once, so they answer before they hear the next order.
        """
        if generation <= self._examined or not self._in(generation):
            return
        suspects = [
            name
            for name, process in self._processes.items()
            if culprit is not None
            and culprit.node == self._node
            and process.is_in(culprit.slot, culprit.nonce)
        ]
        suspect = self._processes[suspects[0]] if suspects else None
        path = self._path(generation)
        if suspect is not None and culprit is not None:
            log.warning(
                "worker.hung",
                rank=suspect.rank,
                generation=generation,
                why=culprit.exception,
                stacks=str(path),
            )
        note = culprit.exception if culprit is not None else ""
        name = suspects[0] if suspects else ""
        self._examine(generation, name, note, is_frozen=False, is_silent=culprit is None)

    def _stopped_at_start(self, name: str, process: WorkerProcess, why: str) -> ev.Event:
        """End a worker that has not called `elasticd.run`, and will not by itself: its slot gets
        another.
        """
        slot, nonce = process.slot, process.nonce
        if self._has_steps(_pid(process)):
            return ev.WorkerResumed(slot=slot, nonce=nonce)  # It went on at the last moment.
        log.warning("worker.stopped_at_start", slot=slot, pid=process.pid, why=why)
        self._kill(name)
        failure = replace(self._failure(name), exception=why)
        return ev.WorkerFailed(slot=slot, nonce=nonce, failure=failure)

    def _hung(self, name: str, process: WorkerProcess, verdict: Frozen | Stalled) -> ev.Event:
        """Take a worker out of the world at once; it is killed when its stacks are written."""
        why = verdict.why
        path = self._path(process.generation)
        log.warning(
            "worker.hung",
            rank=process.rank,
            generation=process.generation,
            why=why,
            stacks=str(path),
        )
        self._examine(process.generation, name, why, is_frozen=isinstance(verdict, Frozen))
        failure = hang_of(self._failure(name), why, path)
        if isinstance(verdict, Stalled) and verdict.has_returned:
            failure = returned_early(failure)
        return ev.WorkerFailed(slot=process.slot, nonce=process.nonce, failure=failure)

    def _examine(
        self,
        generation: Generation,
        name: str,
        why: str,
        *,
        is_frozen: bool,
        is_silent: bool = False,
    ) -> None:
        """Begin to collect stacks; a stop of the suspect that falls due meanwhile is carried out
        afterwards.
        """
        self._examined = generation
        suspect = self._processes.get(name)
        found = self._in(generation)
        silent = [p for p in found if is_silent and not self._has_steps(_pid(p))]
        held = [suspect] if suspect is not None else silent
        for each in held:
            each.is_examined, each.is_silent = True, each in silent
        standing = [
            standing_of(
                each,
                note=why if each is suspect else "",
                # Who did not call `elasticd.run` cannot be asked.
                is_frozen=each in silent or (is_frozen and each is suspect),
            )
            for each in found
        ]
        path = self._path(generation)
        self._monitor.write_stacks(
            path, standing, lambda: self._post(partial(self._kill_due, held))
        )

    def _kill_due(self, held: Sequence[WorkerProcess]) -> None:
        """Kill those of the examined workers whose stop became due during the examination."""
        names = {id(process): name for name, process in self._processes.items()}
        for process in held:
            process.is_examined = False
            if process.is_stop_due and id(process) in names:
                self._kill(names[id(process)])

    def _in(self, generation: Generation) -> list[WorkerProcess]:
        found = self._processes.values()
        return [p for p in found if p.pid is not None and p.generation == generation]

    def _path(self, generation: Generation) -> Path:
        return stacks_path(self._run_folder, self._job, generation, self._node)


def _pid(process: WorkerProcess) -> int:
    assert process.pid is not None
    return process.pid
