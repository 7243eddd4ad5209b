"""`elasticd.run`: calls `train` once for each generation, in one process, until the work is done.

In each round this process learns which world it is in, forms the group of that world, agrees with
the other ranks on the newest clean state, copies it where it is missing, and calls `train`. When
`train` returns or raises, one question decides what follows: has the world changed? If it has,
`train` was only interrupted, and the next round goes on from the last commit. If it has not, the
script itself has ended, and its result or its exception is passed on.
"""

import gc
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from elasticd.channel.worker import Enter, Finished, Formed
from elasticd.checkpoint.commit.fail_point import arm_fail_point
from elasticd.errors import CallError, ElasticdError
from elasticd.script.progress import ignore_progress
from elasticd.script.save_reminder import needs_none
from elasticd.telemetry.process_title import rename, worker_title
from elasticd.tensorboard.sender import Sender
from elasticd.train.call_check import check_call, check_device
from elasticd.train.checkpoints import Checkpoints
from elasticd.train.commit_hook import commit_hook
from elasticd.train.device.abort_flag import AbortFlag
from elasticd.train.device.device import device, use_device
from elasticd.train.interrupt import Interrupted
from elasticd.train.introspection.collective_wait import step_wait
from elasticd.train.introspection.unsaved_attributes import UnsavedAttributes
from elasticd.train.process_group import gloo_group, nccl
from elasticd.train.process_group.group import Group, GroupBroken
from elasticd.train.process_group.peer_failure import causes_of, is_peer_unreachable, is_secondary
from elasticd.train.process_group.queued_steps import QueuedSteps
from elasticd.train.scalars.event_feed import EventFeed
from elasticd.train.session.agent_link import AgentLink
from elasticd.train.session.agent_session import AgentSession
from elasticd.train.session.output_file import redirect
from elasticd.train.session.ports import Session
from elasticd.train.session.single_process import SingleProcess
from elasticd.train.settings import WorkerSettings
from elasticd.train.state.state import State, core_of
from elasticd.train.sync.newest_state import RankReport, SourceDecision, agree_on_source
from elasticd.train.sync.state_fetch import FetchResult, fetch_state
from elasticd.train.tcp_store.end_barrier import wait_for_all
from elasticd.train.world import World, world_of

if TYPE_CHECKING:
    from elasticd.train.restore.restore_result import RestoreResult

__all__ = ["run"]

FORM_TIMEOUT_S = 30.0
"""A formation that takes longer is reported with the ranks that are missing."""
PLANNED_FORM_TIMEOUT_S = 1800.0
"""The limit where other ranks first train on to an agreed step, and may pause before it."""

EXPLANATION_S = 60.0
"""How long an exception that looks like another rank's end waits for the agent to say so. With etcd
that takes some milliseconds. While etcd is away the state in this process is still worth as much,
so it is kept for as long as agents keep their workers then (`--isolation-limit`)."""

Train = Callable[[State, World], object]


def run(train: Train, state: State | None = None, *, abort_flag: bool = False) -> None:
    """Call `train(state, world)`, again after each change of world, until all ranks are done.

    Args:
        train: the training. It may be left at any commit, and is called again from its beginning;
            what it builds itself (its DistributedDataParallel, say) it builds anew each time.
        state: all that must survive a change of world. It is at the last commit whenever `train`
            is called. Without one the call is refused.
        abort_flag: on a GPU, queue each fused optimizer's step behind its collectives, and wait for
            them in `commit` instead. Never run on hardware, so it is off.

    Raises:
        CallError: the call is not as it should be; the message says what to change.
        SystemExit: the agent is gone.

    It also raises whatever `train` raises.
    """
    global _HAS_RUN
    settings = WorkerSettings.read(os.environ)
    arm_fail_point(os.environ)
    with _only_run():
        state = check_call(train, state, settings)
        own = use_device()
        check_device(core_of(state).of_kind(torch.nn.Module), own)
        gloo_group.prepare(os.environ)
        if own.type == "cuda":
            nccl.prepare(os.environ)
        session: Session = (
            AgentSession(AgentLink(settings.agent)) if settings.agent else SingleProcess()
        )
        _HAS_RUN = bool(settings.agent)
        ignore_progress()
        needs_none()
        core_of(state).on_nan = settings.on_nan
        _Run(train, state, session, settings, bool(abort_flag)).go()


class _Run:
    """One call of `run`, from its first world to its last."""

    def __init__(
        self, train: Train, state: State, session: Session, settings: WorkerSettings, has_flag: bool
    ) -> None:
        self._train = train
        self._state, self._core = state, core_of(state)
        self._session = session
        self._settings, self._has_flag = settings, has_flag
        self._flag: AbortFlag | None = None
        self._lineage = 0
        """The newest generation in which this process had the same state as all others."""
        self._is_forming = False
        self._was_training = False
        """True if `train` was called in the world before this one."""
        self._has_grad = torch.is_grad_enabled()
        self._held: weakref.ref[object] | None = None
        self._unsaved = UnsavedAttributes()
        self._checkpoints = Checkpoints(settings, self._core, session)
        self._feed = EventFeed(Sender(settings.tensorboard)) if settings.tensorboard else None
        self._core.commit_scalars.feed = self._feed

    def go(self) -> None:
        """Train in one world after another until the work is done."""
        self._session.attach(self._core, os.getpid())
        try:
            while (enter := self._session.next_world()) is not None:
                if self._is_done_in(enter):
                    return
                self._checkpoints.wait_for_final_save()
        finally:
            self._session.close()
        # Without the agent nobody can say when this world is over. The pool ends what is left of
        # the job, and nobody needs a traceback of that.
        raise SystemExit(1)

    def _is_done_in(self, enter: Enter) -> bool:
        """Train in one world; return False if it changed before all ranks had finished."""
        redirect(enter.out_path, enter.err_path)
        if self._settings.agent:
            rename(*worker_title(self._settings.job, enter.rank))
        # A rank that has just left `train` as agreed is followed by the others at once.
        is_early = enter.at_step is not None and not self._was_training
        timeout_s = PLANNED_FORM_TIMEOUT_S if is_early else FORM_TIMEOUT_S
        self._was_training = False
        self._flag = AbortFlag(device()) if self._has_flag else None
        group = Group(
            enter,
            device=device(),
            timeout_s=timeout_s,
            env=os.environ,
            on_abort=self._flag.set if self._flag is not None else None,
        )
        self._session.use(group)
        is_done = False
        try:
            world, formed, note = self._form(group, enter)
            self._session.formed(formed, note)
            self._was_training = True
            # The script may have been interrupted where it had switched gradients off.
            torch.set_grad_enabled(self._has_grad)
            self._session.call(lambda: self._train(self._state, world))
            is_done = self._finish(group, enter)
        except BaseException as exc:
            is_own = self._is_own(exc, group, enter.generation)
            is_agreed = self._session.has_left_as_agreed
            # Other ranks wait for this one in a collective. They must hear of its end first of all,
            # and nothing here may wait for them.
            group.abort()
            self._session.use(None)
            self._checkpoints.end(is_agreed=is_agreed)
            self._end_feed()
            self._core.leave()
            if is_own:
                # With an agent the process ends now, and its report says whether it had a group. In
                # a notebook, without an agent, it may run once more.
                if not self._settings.agent:
                    group.close()
                raise
            _forget(exc)
        self._session.use(None)
        self._session.on_commit = None
        self._checkpoints.end()
        self._end_feed()
        self._core.leave()
        group.close()
        self._collect_garbage()
        return is_done

    def _form(self, group: Group, enter: Enter) -> tuple[World, Formed, str]:
        """Build the group, and give all ranks the newest state."""
        core, world = self._core, world_of(enter, device())
        self._is_forming = True
        started_s = time.monotonic()
        group.form()
        self._held = weakref.ref(dist.group.WORLD)
        formed_s = time.monotonic()
        decision = self._agree(group, enter)
        agreed_s = time.monotonic()
        restored, fetched = self._bring_state(group, decision, world)
        self._lineage = enter.generation
        core.enter(world, self._session)
        if self._flag is not None:
            core.guard.queued = QueuedSteps.of(
                self._flag, core.guard.optimizers, core.of_kind(object), self._session, core.on_nan
            )
        group.arrival.watch(core.guard.optimizers)
        step_wait.begin_generation()
        if self._feed is not None:
            self._feed.begin(enter.generation, enter.rank, core.step)
        entered_s = time.monotonic()
        is_opened = restored is not None
        save = self._checkpoints.begin(group, world, decision, is_opened=is_opened)
        every = self._settings.compare_every
        self._session.on_commit = commit_hook(
            group.store,
            world,
            core,
            is_over=lambda: group.is_aborted,
            every=every,
            unsaved=self._unsaved,
            save=save,
        )
        phases_s = {
            "form": formed_s - started_s,
            "compare": agreed_s - formed_s + fetched.compare_s,
            "copy": entered_s - agreed_s - fetched.compare_s,
        }
        formed = Formed(
            generation=enter.generation,
            step=core.step,
            source=min(decision.sources) if decision.targets else -1,
            received_bytes=fetched.received_bytes,
            place=restored.place if restored is not None else "",
            phases_s=phases_s,
            backend=group.backend,
        )
        return world, formed, self._note(enter, decision, restored)

    def _agree(self, group: Group, enter: Enter) -> SourceDecision:
        """Agree with all ranks on who has the newest state, and on who lacks it."""
        # An exception of the script's own objects is the script's error, whatever it looks like.
        self._is_forming = False
        self._core.rollback()
        self._checkpoints.collect()
        structure = self._core.structure()
        self._is_forming = True
        report = RankReport.of(
            enter.rank,
            self._core,
            lineage=self._lineage,
            node=enter.node_rank,
            **self._checkpoints.report,
        )
        decision = agree_on_source(group, report, structure)
        self._checkpoints.survey(group, decision)
        return decision

    def _bring_state(
        self, group: Group, decision: SourceDecision, world: World
    ) -> "tuple[RestoreResult | None, FetchResult]":
        """Give this rank the newest state: restored where no rank has it, else from a rank."""
        # The script's builders run here, and their exceptions are the script's, too.
        self._is_forming = False
        self._checkpoints.build(decision, world)
        self._is_forming = True
        must_restore = self._checkpoints.must_restore(decision)
        restored = self._checkpoints.restore(group) if must_restore else None
        fetched = FetchResult()
        if restored is None or restored.snapshot is None:  # Nothing was stored: rank 0's counts.
            fetched = fetch_state(group, decision, self._core, self._checkpoints.is_replicated)
        self._is_forming = False
        return restored, fetched

    def _note(self, enter: Enter, decision: SourceDecision, restored: "RestoreResult|None") -> str:
        """Return the sentence that says where the state is from; rank 0 also prints it."""
        note = restored.sentence if restored is not None else decision.note
        if not note and enter.generation > 1 and self._core.position == (0, 0):
            note = "No rank had a committed step to go on from: the training begins anew."
        if note and enter.rank == 0:
            sys.stderr.write(f"elasticd: {note}\n")
        return note

    def _end_feed(self) -> None:
        if self._feed is not None:
            self._feed.end()

    def _collect_garbage(self) -> None:
        """Free what only reference cycles keep of the old generation, if anything does.

        An old DistributedDataParallel holds its group as an attribute, so a group that still exists
        shows that one is left. A garbage collection costs milliseconds, so it runs only then.
        """
        if self._held is not None and self._held() is not None:
            gc.collect()
        self._held = None

    def _finish(self, group: Group, enter: Enter) -> bool:
        """Wait until `train` has returned on all ranks, then report what the whole run did.

        Returns False if the world changed before that.
        """
        self._session.has_returned = True
        try:
            is_stale = self._session.is_stale
            if not wait_for_all(group.store, enter.size, lambda: is_stale(enter.generation)):
                return False
            self._checkpoints.finish(enter.generation)
        finally:
            self._session.has_returned = False
        ledger = self._core.data_totals
        self._session.finished(
            Finished(
                step=self._core.step,
                epochs=self._core.epoch,
                samples=ledger.samples,
                repeated=ledger.repeated,
                skipped=ledger.skipped,
            )
        )
        if enter.rank == 0:
            sys.stdout.write(f"elasticd: {self._state.summary()}\n")
        return True

    def _is_own(self, exc: BaseException, group: Group, generation: int) -> bool:
        """Return whether the script ended by itself, so that no change of world explains it."""
        if isinstance(exc, KeyboardInterrupt | SystemExit | GeneratorExit):
            return True
        if isinstance(exc, Interrupted) or self._session.is_stale(generation):
            return False
        if isinstance(exc, ElasticdError) and not isinstance(exc, GroupBroken):
            return True
        # What the store and the sockets raise in a formation, or after we aborted the group, is no
        # error of the script.
        is_ours = self._is_forming or group.is_aborted
        # A ValueError: torch knows no group any more, since NCCL's abort makes it forget them.
        is_forgotten = group.is_aborted and isinstance(exc, ValueError)
        is_network = is_forgotten or (is_ours and isinstance(exc, RuntimeError | OSError))
        is_broken = isinstance(exc, GroupBroken) or is_network
        if not is_broken and not is_secondary(exc, is_peer_gone=group.is_peer_gone()):
            return True
        if self._session.has_newer(generation):
            return False  # A change is planned for a later step, and a peer has left already.
        # This comes before the abort, by which others fall out of their collectives, too.
        is_timed_out = isinstance(exc, GroupBroken) and exc.is_timed_out
        unreachable = group.unreachable() if is_timed_out or is_peer_unreachable(exc) else ()
        group.abort()
        self._session.broken(f"{type(exc).__name__}: {exc}"[:500], unreachable)
        if is_broken:
            return False  # The group never worked; the agents can try again.
        return not self._session.wait_newer(generation, EXPLANATION_S)


def _forget(exc: BaseException) -> None:
    """Free what `train` built, by clearing the frames that the exception came through.

    An old DistributedDataParallel must not outlive its generation, because its hooks on the
    parameters would reduce gradients over a group that is gone.
    """
    for one in list(causes_of(exc)):
        traceback.clear_frames(one.__traceback__)
        one.__traceback__ = one.__cause__ = one.__context__ = None


_LOCK = threading.Lock()
_HAS_RUN = False


@contextmanager
def _only_run() -> Iterator[None]:
    """Refuse a run beside another one, and a second run of a job.

    Raises: CallError: one is running, or the job has had its run.
    """
    if not _LOCK.acquire(blocking=False):
        raise CallError(
            "elasticd.run is running already in this process: call it once, and put all that is "
            "to be trained into one train(state, world)."
        )
    try:
        if _HAS_RUN:
            raise CallError(
                "elasticd.run has returned already: a job has one run, since other ranks may be "
                "gone by now. Put the second part into the same train(state, world), or into a "
                "job of its own."
            )
        yield
    finally:
        _LOCK.release()
