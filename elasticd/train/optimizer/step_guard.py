"""Tracks how long a rank's parameters are those of its last commit, and goes back to them.

A step ends with `commit`, but parameters change before that, in `optimizer.step()`. Two hooks that
torch calls around every optimizer's step show when. Before the first optimizer's step, all
gradients that it reads must be known to be good: kernels behind an aborted NCCL collective would go
on with sums that lack a rank. From there to the commit the rank is dirty: its state belongs to no
step, and no rank may copy it.

Most scripts cannot be interrupted while dirty: there is nothing collective between the steps of
their optimizers and the commit. Others, which are found by watching, get a copy of what the
optimizer is about to change (`undo`). Rejected: that copy for each script (a tenth of a step).
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch.optim import optimizer as step_hooks

from elasticd.train.interrupt import uninterruptible
from elasticd.train.optimizer import nonfinite_gradient, sharded_optimizer, unsupported
from elasticd.train.optimizer.grad_scaler import drop_scale
from elasticd.train.optimizer.nonfinite_gradient import OnNan, not_finite
from elasticd.train.optimizer.optimizer_undo import OptimizerUndo, parameters_of
from elasticd.train.optimizer.parameter_change import ParameterMonitor, is_probed
from elasticd.train.optimizer.waiting_gradient import WaitingGradients
from elasticd.train.session.step_session import QueuedSteps, StepSession

__all__ = ["StepGuard"]

COPY_LIMIT_BYTES = 64 << 20
"""Parameters up to this size are copied as a generation begins (30 ms with Adam's state), and as an
epoch does: scripts that seldom write into them, or drop moments, mostly do it there."""

PROBATION = 2
"""How many commits it takes to know whether a script does something between its steps and its
commits; of several optimizers those commits count in which each made a step."""

UNCOMMITTED_STEPS = 20
"""After this many steps of one optimizer without a commit a person is told. Some scripts make
several for each commit; one that forgot to commit makes no progress at all."""

HABIT = 2
"""After this many steps in a row with parameters changed beforehand, it is a habit."""

_graph_task = torch._C._current_graph_task_id
_Optimizer = torch.optim.Optimizer
_Call = tuple[tuple[Any, ...], dict[str, Any]]


class StepGuard:
    """The optimizers of one state."""

    def __init__(self) -> None:
        self.skipped = 0
        """Optimizer steps that were left out because of bad gradients."""
        self.is_busy = False
        """True in the middle of a commit."""
        self.is_waiting = False
        """It is one of samples whose gradients no optimizer has used yet."""
        self.queued: QueuedSteps | None = None
        """How the steps of this generation are queued; None: each waits for its collectives."""
        self._leads: dict[_Optimizer, _Optimizer] = {}
        self._undo: dict[_Optimizer, OptimizerUndo] = {}
        self.names: dict[int, str] = {}  # of parameters, by their ids
        self._parameters: list[torch.Tensor] = []
        self._known: frozenset[int] = frozenset()
        self._is_on_gpu = self._is_small = self._is_epoch = self._is_warned = False
        self._on_nan = OnNan.IGNORE
        self._session: StepSession | None = None
        self._sequence: Callable[[], int | None] = lambda: None
        self._barrier: Callable[[], object] | None = None
        self._any_rank: Callable[[bool], bool] | None = None
        self._hooks = ExitStack()
        self._generations = self._commits = self._joint_commits = 0  # joint: with a step of each
        # What is known of the step that has not been committed:
        self._begun: dict[_Optimizer, bool] = {}  # and whether its step ended
        self._running: _Optimizer | None = None
        self._depth = 0  # of calls of its step within each other
        self._is_touched = self._is_copied = False  # the latter: all, when the rank was clean
        self._holds_copies = False  # one of them has memory for a copy
        self._synchronized_at: int | None = -1
        self._met_at: int | None = -1
        self._stepped_at: int | None = None
        self.monitor = ParameterMonitor()
        self._waiting = WaitingGradients()
        # Habits of the script:
        self._is_followed = False  # by collectives between the first step and the commit
        self._touches = self._uncommitted = 0  # the latter: optimizer steps since the last commit

    @property
    def is_dirty(self) -> bool:
        return bool(self._begun) or self._is_touched or self.is_busy

    @property
    def has_stepped(self) -> bool:
        """Return whether the rank is dirty, and every optimizer that began its step ended it.

        Parameters that other code has written belong to no step.
        """
        return bool(self._begun) and not self.is_busy and all(self._begun.values())

    @property
    def optimizers(self) -> tuple[_Optimizer, ...]:
        return tuple(self._undo)

    def bind(
        self, optimizers: Mapping[_Optimizer, tuple[_Optimizer, ...]], names: dict[int, str]
    ) -> None:
        """Watch these optimizers, each with the others through which the script may step it.

        `names` of parameters are for messages, by their ids.
        """
        self._leads = {
            each: lead for lead, others in optimizers.items() for each in (lead, *others)
        }
        self._undo = {lead: self._undo.get(lead) or OptimizerUndo(lead) for lead in optimizers}
        self.names = names
        every = {id(each): each for lead in self._undo for each in parameters_of(lead)}
        self._parameters = list(every.values())
        self._known = frozenset((*every, *names))
        self.monitor.bind(self.optimizers, self._parameters)
        self._is_on_gpu = any(each.is_cuda for each in self._parameters)

    def arm(
        self,
        session: StepSession,
        on_nan: OnNan,
        barrier: Callable[[], object] | None = None,
        any_rank: Callable[[bool], bool] | None = None,
    ) -> None:
        """Begin a generation; the state is clean.

        `barrier` is called before actions that only all ranks together may take: take a step, and
        commit it if something came in between. `any_rank` says on all ranks whether one was given
        True, where no rank sees all gradients.
        """
        self.disarm()
        self._any_rank, self._barrier, self._session, self.queued = any_rank, barrier, session, None
        self._on_nan, self._sequence = on_nan, session.sequence
        self._begin_step()
        # In the process's first generation it is not known how much memory the GPU will need. To
        # copy a large state would be the longest part of a recovery: a rank that is interrupted
        # in its first step then counts as one that has stepped, which is nearly as good.
        self._generations += 1
        self._is_small = sum(each.nbytes for each in self._parameters) <= COPY_LIMIT_BYTES
        if self._is_small and (self._generations > 1 or not self._is_on_gpu):
            self._copy_all(is_required=False)
        self.monitor.rebaseline(is_expected=True, is_hashed=self._is_small or self._is_on_gpu)
        self._hooks.callback(step_hooks.register_optimizer_step_pre_hook(self._before).remove)
        self._hooks.callback(step_hooks.register_optimizer_step_post_hook(self._after).remove)

    def disarm(self) -> None:
        """End a generation; a dirty rank stays dirty."""
        self._hooks.close()
        self._session = None

    def begin_pause(self) -> None:
        """Begin a pause: an evaluation may put other parameters in place for a while."""
        self._check_parameters(is_close=True)
        if not self.is_dirty:
            if self.monitor.is_usual:
                self._copy_all(is_required=True)
            self.monitor.rebaseline(is_expected=True, is_probe=True)

    def begin_commit(self, *, is_epoch: bool = False) -> None:
        """Make sure that the step may count, or an epoch; not clean before `end_commit`.

        Raises:
            CallError: an optimizer's step was left by an exception.
            Interrupted: the generation is over.
        """
        assert self._session is not None
        if not all(self._begun.values()):
            unsupported.check_ended(self._begun)
        sequence = self._sequence()
        if self.queued is not None:
            self.queued.confirm()
        if not self._begun or (sequence is not None and sequence != self._synchronized_at):
            self._session.synchronize()
        if self._stepped_at is not None and sequence is not None:
            self._is_followed |= sequence != self._stepped_at
        if self._barrier is not None and (sequence is None or sequence != self._met_at):
            self._wait_at_barrier()
        few = len(self._begun) < len(self._undo)  # Else each optimizer has used its gradients.
        self._is_epoch = is_epoch
        self.is_waiting = few and self._waiting.are_there(self._undo, self._begun, self._parameters)
        self.is_busy = True

    def cancel_commit(self) -> None:
        """Cancel the commit: the rank is as dirty as before."""
        self.is_busy = False

    def end_commit(self) -> None:
        """Mark the rank clean: this is the step to go back to from now on."""
        self._commits += 1
        self._joint_commits += len(self._begun) == len(self._undo)
        self._uncommitted = 0
        self._touches = self._touches + 1 if self._is_touched else 0
        if self.queued is not None:
            self.queued.end_commit()
        self._begin_step()
        if (is_habit := self._touches >= HABIT) or (self._is_epoch and self._is_small):
            self._copy_all(is_required=is_habit)
        elif self._holds_copies and not self._needs_undo():
            for undo in self._undo.values():
                undo.release()
            self._holds_copies = False
        self.monitor.rebaseline(is_hashed=self._touches > 0, is_probe=is_probed(self._commits))
        self.is_busy = False

    def undo(self) -> bool:
        """Go back to the last commit if anything has changed; return whether it is clean."""
        if self.is_busy:
            return False
        self._running = None
        self._check_parameters(is_close=True)
        for each in self._leads:
            drop_scale(each)
        if self.queued is not None and self.has_stepped:
            self._begun = self.queued.made(self._begun)
        if not self.is_dirty:
            return True
        self._is_followed |= bool(self._begun) and all(self._begun.values())
        to_undo = [self._undo[each] for each in (self._undo if self._is_copied else self._begun)]
        if (self._is_touched and not self._is_copied) or not all(u.is_valid for u in to_undo):
            return False
        for undo in reversed(to_undo):  # One step within another was copied later.
            undo.put_back()
        self._begun.clear()
        self._is_touched = False
        self.monitor.rebaseline()
        return True

    def trust(self) -> None:
        """Take the present values for those committed: on a clean rank they were put back."""
        if not self.is_dirty and self.monitor.has_baseline:
            self.monitor.rebaseline()

    def reset(self) -> None:
        """Mark the rank clean: the state was replaced by one that counts."""
        self.is_busy = False
        self._begin_step()
        self.monitor.drop_baseline()

    # --- around each optimizer's step -----------------------------------------------------------

    @uninterruptible
    def _before(
        self, optimizer: _Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Call | None:
        lead = self._leads.get(optimizer)
        if self._running is not None:
            # It is a part of another's step, or that ended with an exception: then neither counts.
            if lead is self._running:
                self._depth += 1
            elif lead is not None:
                self._begin_within(lead)
            return None
        if lead is None:
            unsupported.check_unknown(optimizer, self._known)
            return None
        if self._is_on_gpu or _graph_task() != -1:
            unsupported.check_step(lead, is_on_gpu=self._is_on_gpu)
        is_plain = not kwargs and len(args) == 1  # The optimizer itself is among the arguments.
        if self.queued is not None and self._is_queued(self.queued, optimizer, is_plain=is_plain):
            self._synchronized_at = self._sequence()
        else:
            self._synchronize()
        if not self._begun:
            if self._barrier is not None:
                self._wait_at_barrier()
            # Some scripts write past torch's counters at each step; they are known by the first.
            is_close = self._touches > 0 or self.monitor.is_hashed
            self._is_touched |= self.monitor.has_changed(is_close=is_close)
        else:
            self._met_at = -1  # Sums of a group of the script's own are not counted.
        call = None if is_plain else self._with_closure(lead, args, kwargs)
        if call is None and self._on_nan is not OnNan.IGNORE:
            self._look_at_gradients(lead)
        if lead not in self._begun and not self._is_copied:
            is_needed = call is not None or self._needs_undo()
            if is_needed or self._commits < PROBATION:
                self._copy(lead, is_required=is_needed)
        if self._stepped_at is None:
            self._stepped_at = self._synchronized_at
        if self._is_on_gpu and sharded_optimizer.has_other_groups():
            self._synchronized_at = -1  # The commit waits: only the default group's are counted.
        self._running, self._depth = lead, 1
        self._begun[lead] = False
        return call

    @uninterruptible
    def _after(self, optimizer: _Optimizer, args: object, kwargs: object) -> None:
        lead = self._leads.get(optimizer)
        if lead is None and self._running is not None:
            unsupported.check_inner(self._running, optimizer, self._known)
        if lead is not self._running or lead is None:
            if lead in self._begun:
                self._begun[lead] = True
            return
        self._depth -= 1
        if not self._depth:
            self._running = None
            self._begun[lead] = True
            if self.queued is not None:
                self.queued.end_step()
            self._uncommitted += 1
            if self._uncommitted == UNCOMMITTED_STEPS * len(self._undo) and not self._is_warned:
                self._is_warned = True
                unsupported.warn_of_no_commit(self._uncommitted)

    def _begin_within(self, lead: _Optimizer) -> None:
        """Begin a step inside another optimizer's step, which does not save this one's state."""
        if lead not in self._begun:
            outer = self._undo.get(self._running) if self._running is not None else None
            if not self._is_copied and outer is not None and outer.is_valid:  # Else: of no use.
                self._copy(lead, is_required=True)
            self._begun[lead] = False

    def _is_queued(self, queued: QueuedSteps, optimizer: _Optimizer, *, is_plain: bool) -> bool:
        """Return whether a step that begins need not wait: the device leaves it out if it must."""
        if self._begun:
            queued.confirm()  # Of two steps none is made without the other.
            return False
        # A look at all bytes of the parameters waits in any case.
        is_close = self._touches > 0 or self.monitor.is_hashed
        return is_plain and not is_close and len(self._leads) == 1 and queued.queue(optimizer)

    def _synchronize(self) -> None:
        """Wait for the results that this step will read, unless none came since the last time."""
        assert self._session is not None
        sequence = self._sequence()
        is_known = sequence is not None and sequence == self._synchronized_at
        if self._begun and is_known and not self._is_on_gpu:  # Gloo's have results by now.
            return
        self._session.synchronize()
        self._synchronized_at = sequence

    def _wait_at_barrier(self) -> None:
        """Wait for the others: from here on the step counts for all ranks, or none got here."""
        assert self._barrier is not None
        self._barrier()
        # Who is lost from now on has been here, so there is nothing more to wait for.
        self._synchronized_at = self._met_at = self._sequence()

    def _with_closure(self, lead: _Optimizer, args: Any, kwargs: dict[str, Any]) -> _Call | None:
        def check() -> None:
            self._synchronize()
            if self._on_nan is not OnNan.IGNORE and self._has_bad(lead):
                raise not_finite(lead, self.names)

        return nonfinite_gradient.with_checked_closure(args, kwargs, check)

    def _look_at_gradients(self, lead: _Optimizer) -> None:
        # A fused optimizer gets a GradScaler's findings and leaves its parameters alone by itself.
        if getattr(lead, "found_inf", None) is not None or not self._has_bad(lead):
            return
        if self._on_nan is OnNan.STOP:
            raise not_finite(lead, self.names)
        nonfinite_gradient.clear(lead)
        self.skipped += 1

    def _has_bad(self, lead: _Optimizer) -> bool:
        """Return the same on all ranks: otherwise some would take a step that others leave out."""
        is_bad = nonfinite_gradient.has_bad(lead)
        if self._any_rank is None:
            return is_bad
        is_bad = self._any_rank(is_bad)
        self._synchronized_at = self._sequence()
        return is_bad

    # --- what the step does besides ---------------------------------------------------------------

    def _needs_undo(self) -> bool:
        is_known = len(self._undo) < 2 or self._joint_commits >= PROBATION
        return self._is_followed or not is_known

    def _begin_step(self) -> None:
        self._begun.clear()
        self._running = None
        self._is_touched = self._is_copied = False
        self._stepped_at = None
        self._synchronized_at = self._met_at = -1
        for undo in self._undo.values() if self._holds_copies else ():
            undo.drop()

    def _copy(self, lead: _Optimizer, *, is_required: bool) -> None:
        self._holds_copies = True
        self._undo[lead].take(is_required=is_required)

    def _copy_all(self, *, is_required: bool) -> None:
        for lead in self._undo:
            self._copy(lead, is_required=is_required)
        self._is_copied = all(undo.is_valid for undo in self._undo.values())

    def _check_parameters(self, *, is_close: bool = False) -> None:
        if not self._begun:
            self._is_touched |= self.monitor.has_changed(is_close=is_close)
