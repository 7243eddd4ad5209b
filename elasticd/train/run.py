"""`elasticd.run`: calls `train` once for each generation, in one process, until the work is done.

Each round: be told the world, form its group, agree on the newest clean state and copy it to those
who lack it, train. Whatever makes `train` return or raise, one question decides what follows: has
the world changed? If so, it was only interrupted, and the next round begins where the last commit
stood. If not, it is the script's own end, good or bad, and leaves as it came.
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

import torch
import torch.distributed as dist

from elasticd.channel.worker import Enter, Finished, Formed
from elasticd.errors import CallError, ElasticdError
from elasticd.script.progress import ignore_progress
from elasticd.telemetry.process_title import rename, worker_title
from elasticd.tensorboard.sender import Sender
from elasticd.tensors.fingerprint import owned_tensors
from elasticd.train.call_check import check_call, check_device
from elasticd.train.checkpoints import Checkpoints
from elasticd.train.device.device import device, use_device
from elasticd.train.interrupt import Interrupted
from elasticd.train.introspection.collective_wait import step_wait
from elasticd.train.process_group import nccl
from elasticd.train.process_group.group import Group, GroupBroken
from elasticd.train.process_group.peer_failure import causes_of, is_echo, is_silence
from elasticd.train.restore.restore_result import RestoreResult
from elasticd.train.session.agent_link import AgentLink
from elasticd.train.session.agent_session import AgentSession
from elasticd.train.session.output_file import redirect
from elasticd.train.session.ports import Session
from elasticd.train.session.single_process import SingleProcess
from elasticd.train.settings import WorkerSettings
from elasticd.train.state.state import State
from elasticd.train.sync.newest_state import RankReport, SourceDecision, agree_on_source
from elasticd.train.sync.replica_check import ReplicaCheck
from elasticd.train.sync.state_fetch import FetchResult, fetch_state
from elasticd.train.tcp_store.end_barrier import wait_for_all
from elasticd.train.tensorboard.feed import EventFeed
from elasticd.train.world import World

__all__ = ["run"]

FORM_TIMEOUT_S = 30.0
"""A formation that takes longer is reported with the ranks that are missing."""
PLANNED_FORM_TIMEOUT_S = 1800.0
"""The same where others go on to a step that was agreed on, and may pause before it."""

EXPLANATION_S = 60.0
"""How long an exception that looks like another rank's end waits for word of it. Word comes in some
milliseconds where etcd is well; where it is away the state in this process is worth as much as
before, so it is kept for as long as agents keep their workers then (`--isolation-limit`)."""

Train = Callable[[State, World], object]


def run(train: Train, state: State) -> None:
    """Call `train(state, world)`, again after each change of world, until all ranks are done.

    What must survive a change stands in `state`; what `train` builds itself (its
    DistributedDataParallel, say) it builds anew. An exception that `train` raises leaves here.

    Raises:
        CallError: not called as it should be; the message says what to change.
    """
    global _HAS_RUN
    setting = WorkerSettings.read(os.environ)
    with _only_run():
        check_call(train, state, setting)
        own = use_device()
        check_device(state._of(torch.nn.Module), own)
        if own.type == "cuda":
            nccl.prepare(os.environ)
        session: Session = (
            AgentSession(AgentLink(setting.agent)) if setting.agent else SingleProcess()
        )
        _HAS_RUN = bool(setting.agent)
        ignore_progress()
        state._on_nan = setting.on_nan
        _Run(train, state, session, setting).go()


class _Run:
    def __init__(
        self, train: Train, state: State, session: Session, setting: WorkerSettings
    ) -> None:
        self._train = train
        self._state = state
        self._session = session
        self._setting = setting
        self._lineage = 0
        """The newest generation in which this process had the same state as all others."""
        self._is_forming = False
        self._was_training = False
        """In the world before this one."""
        self._has_grad = torch.is_grad_enabled()
        self._held: weakref.ref[object] | None = None
        self._persistence = Checkpoints(setting, state, session)
        self._feed = EventFeed(Sender(setting.tensorboard)) if setting.tensorboard else None
        state._given.feed = self._feed

    def go(self) -> None:
        """Go from world to world."""
        self._session.attach(self._state, os.getpid())
        try:
            while (enter := self._session.next_world()) is not None:
                if self._is_done_in(enter):
                    return
                self._persistence.part()
        finally:
            self._session.close()
        # The agent is gone, and with it whoever could say when this world is over. The pool ends
        # what is left of the job; nobody needs a traceback of that.
        raise SystemExit(1)

    def _is_done_in(self, enter: Enter) -> bool:
        """Train in one world; False if it changed before all ranks had finished."""
        redirect(enter.out_path, enter.err_path)
        if self._setting.agent:
            rename(*worker_title(self._setting.job, enter.rank))
        # Who has just left where the others are is followed by them at once.
        is_early = enter.at_step is not None and not self._was_training
        timeout_s = PLANNED_FORM_TIMEOUT_S if is_early else FORM_TIMEOUT_S
        self._was_training = False
        group = Group(enter, device=device(), timeout_s=timeout_s)
        self._session.use(group)
        is_done = False
        try:
            world, formed, note = self._form(group, enter)
            self._session.formed(formed, note)
            self._was_training = True
            # It may have been interrupted where the script had switched that off.
            torch.set_grad_enabled(self._has_grad)
            self._session.call(lambda: self._train(self._state, world))
            is_done = self._finish(group, enter)
        except BaseException as exc:
            is_own = self._is_own(exc, group, enter.generation)
            is_agreed = self._session.has_left_as_agreed
            # Others wait for this rank in a collective: they must hear of its end before anything
            # else, and nothing here may wait for them.
            group.abort()
            self._session.use(None)
            self._persistence.end(is_agreed=is_agreed)
            self._end_feed()
            self._state._leave()
            if is_own:
                # With an agent the process ends now, and whether it had a group is reported. In a
                # notebook it may run once more.
                if not self._setting.agent:
                    group.close()
                raise
            _forget(exc)
        self._session.use(None)
        self._session.on_commit = None
        self._persistence.end()
        self._end_feed()
        self._state._leave()
        group.close()
        self._bury()
        return is_done

    def _form(self, group: Group, enter: Enter) -> tuple[World, Formed, str]:
        """Build the group, and give all ranks the newest state."""
        state, world = self._state, _world_of(enter)
        self._is_forming = True
        started_s = time.monotonic()
        group.form()
        self._held = weakref.ref(dist.group.WORLD)
        formed_s = time.monotonic()
        decision = self._agree(group, enter)
        agreed_s = time.monotonic()
        restored, fetched = self._bring_state(group, decision, world)
        self._lineage = enter.generation
        state._enter(world, self._session)
        group.arrival.watch(state._guard.optimizers)
        step_wait.begin_generation()
        if self._feed is not None:
            self._feed.begin(enter.generation, enter.rank, state.step)
        entered_s = time.monotonic()
        self._watch_commits(group, world, decision, is_opened=restored is not None)
        phases_s = {
            "form": formed_s - started_s,
            "compare": agreed_s - formed_s + fetched.compare_s,
            "copy": entered_s - agreed_s - fetched.compare_s,
        }
        formed = Formed(
            generation=enter.generation,
            step=state.step,
            source=min(decision.sources) if decision.targets else -1,
            received_bytes=fetched.received_bytes,
            place=restored.place if restored is not None else "",
            phases_s=phases_s,
        )
        return world, formed, self._note(enter, decision, restored)

    def _agree(self, group: Group, enter: Enter) -> SourceDecision:
        """Agree with all ranks on who has the newest state, and on who lacks it."""
        # What the script's own objects raise is the script's error, whatever it looks like.
        self._is_forming = False
        self._state._settle_back()
        self._persistence.collect()
        structure = self._state._structure()
        self._is_forming = True
        report = RankReport.of(
            enter.rank,
            self._state,
            lineage=self._lineage,
            node=enter.node_rank,
            **self._persistence.report,
        )
        decision = agree_on_source(group, report, structure)
        self._persistence.survey(group, decision)
        return decision

    def _bring_state(
        self, group: Group, decision: SourceDecision, world: World
    ) -> tuple[RestoreResult | None, FetchResult]:
        """Give this rank the newest state: restored where no rank has it, else from a rank."""
        # What is built for it is the script's too.
        self._is_forming = False
        is_lost = self._persistence.prepare(decision, world)
        self._is_forming = True
        restored = self._persistence.restore(group) if is_lost else None
        fetched = FetchResult()
        if restored is None:
            fetched = fetch_state(group, decision, self._state)
        self._is_forming = False
        return restored, fetched

    def _note(self, enter: Enter, decision: SourceDecision, restored: RestoreResult | None) -> str:
        """Return the sentence that says where the state is from; rank 0 also prints it."""
        note = restored.sentence if restored is not None else decision.note
        if not note and enter.generation > 1 and self._state._position == (0, 0):
            note = "No rank had a committed step to go on from: the training begins anew."
        if note and enter.rank == 0:
            sys.stderr.write(f"elasticd: {note}\n")
        return note

    def _end_feed(self) -> None:
        if self._feed is not None:
            self._feed.end()

    def _bury(self) -> None:
        """Collect what only cycles keep of the old generation, if anything does.

        An old DistributedDataParallel holds its group as an attribute, so a group that is still
        there tells of one. A collection costs milliseconds, so it is not made for nothing.
        """
        if self._held is not None and self._held() is not None:
            gc.collect()
        self._held = None

    def _watch_commits(
        self, group: Group, world: World, decision: SourceDecision, *, is_opened: bool
    ) -> None:
        """Have each commit looked at by those who compare replicas and take snapshots."""
        hooks: list[Callable[[int], None]] = []
        every, guard = self._setting.compare_every, self._state._guard
        if every != 0 and world.size > 1:
            hooks.append(
                ReplicaCheck(
                    group.store,
                    rank=world.rank,
                    size=world.size,
                    step=self._state.step,
                    every=every or 0,
                    tensors=lambda: owned_tensors(guard.optimizers, guard._names),
                ).compare
            )
        saving = self._persistence.begin(group, world, decision, is_opened=is_opened)
        hooks += [saving] if saving is not None else []
        self._session.on_commit = _all_of(hooks)

    def _finish(self, group: Group, enter: Enter) -> bool:
        """Wait until all ranks have come so far; then tell what the whole run did."""
        self._session.has_returned = True
        try:
            is_stale = self._session.is_stale
            if not wait_for_all(group.store, enter.size, lambda: is_stale(enter.generation)):
                return False
            self._persistence.finish(enter.generation)
        finally:
            self._session.has_returned = False
        ledger = self._state._ledger
        self._session.finished(
            Finished(
                step=self._state.step,
                epochs=self._state.epoch,
                samples=ledger.samples,
                repeated=ledger.repeated,
                skipped=ledger.skipped,
            )
        )
        if enter.rank == 0:
            sys.stdout.write(f"elasticd: {self._state.summary()}\n")
        return True

    def _is_own(self, exc: BaseException, group: Group, generation: int) -> bool:
        """True if this is the script's own end, and no change of world explains it."""
        if isinstance(exc, KeyboardInterrupt | SystemExit | GeneratorExit):
            return True
        if isinstance(exc, Interrupted) or self._session.is_stale(generation):
            return False
        if isinstance(exc, ElasticdError) and not isinstance(exc, GroupBroken):
            return True
        # What the store and the sockets of a formation raise, or of a group that we aborted, is
        # nobody's in the script.
        is_ours = self._is_forming or group.is_aborted
        # A ValueError: torch knows no group any more, since NCCL's abort makes it forget them.
        is_forgotten = group.is_aborted and isinstance(exc, ValueError)
        is_network = is_forgotten or (is_ours and isinstance(exc, RuntimeError | OSError))
        is_broken = isinstance(exc, GroupBroken) or is_network
        if not is_broken and not is_echo(exc, is_peer_gone=group.is_peer_gone()):
            return True
        if self._session.has_newer(generation):
            return False  # Planned for a later step, and a peer has left for it already.
        # Before the abort: others fall out of their collectives by it, and tell of less.
        is_late = isinstance(exc, GroupBroken) and exc.is_late
        unreachable = group.unreachable() if is_late or is_silence(exc) else ()
        group.abort()
        self._session.broken(f"{type(exc).__name__}: {exc}"[:500], unreachable)
        if is_broken:
            return False  # It was only forming; the agents have all they need to try again.
        return not self._session.wait_newer(generation, EXPLANATION_S)


def _world_of(enter: Enter) -> World:
    return World(
        rank=enter.rank,
        size=enter.size,
        local_rank=enter.local_rank,
        local_size=enter.local_size,
        node=enter.node,
        node_rank=enter.node_rank,
        nodes=enter.nodes,
        generation=enter.generation,
        device=device(),
    )


def _forget(exc: BaseException) -> None:
    """Let go of what `train` built, by clearing the frames that the exception came through.

    An old DistributedDataParallel must not outlive its generation: its hooks sit on the parameters
    and would reduce gradients over a group that is gone.
    """
    for one in list(causes_of(exc)):
        traceback.clear_frames(one.__traceback__)
        one.__traceback__ = one.__cause__ = one.__context__ = None


def _all_of(hooks: list[Callable[[int], None]]) -> Callable[[int], None] | None:
    if len(hooks) < 2:
        return hooks[0] if hooks else None

    def every(step: int) -> None:
        for hook in hooks:
            hook(step)

    return every


_LOCK = threading.Lock()
_HAS_RUN = False


@contextmanager
def _only_run() -> Iterator[None]:
    """Refuse a run beside another, and one after the only one that a job has."""
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
