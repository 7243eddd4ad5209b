"""Optimizer steps that are queued behind their collectives, for which the host does not wait.

Otherwise the host waits before each optimizer's step until the sums are known to be whole
(`Group.synchronize`), so the device idles while the step is launched. Here the optimizer gets as
its `found_inf` the value that the device reads from the abort flag (`abort_flag.py`). If elasticd's
abort ended the collectives, the flag was raised before, and the step changes nothing. The host
waits in `commit`, when the optimizer's kernels are queued, and only for the read of the flag.

That holds for torch's own fused optimizers, one in a state, with nobody around their step. Other
optimizers are refused when the world is entered, or their step waits as without this module. A step
waits with a script's own GradScaler or closure, with hooks, and until each parameter has its state,
because SGD would keep momentum that nobody has written if its first step were left out.

A write to parameters between the step and the commit would be taken for part of a commit that never
was. So such writes are watched like those between a commit and the next step, and a script that
makes one waits from then on.
"""

import sys
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import optimizer as step_hooks

from elasticd.errors import CallError
from elasticd.tensors import cuda
from elasticd.tensors.local_shard import is_distributed
from elasticd.train.device.abort_flag import AbortFlag, FlagReading
from elasticd.train.group_broken import GroupBroken
from elasticd.train.interrupt import Interrupted
from elasticd.train.optimizer.nonfinite_gradient import OnNan
from elasticd.train.optimizer.optimizer_undo import parameters_of
from elasticd.train.optimizer.parameter_change import ParameterMonitor, is_probed
from elasticd.train.session.step_session import StepSession

__all__ = ["QueuedSteps"]

PATIENCE_S = 10.0
"""How long a look at the flag may take after its group was closed: its kernels have ended."""

_OUT = "or leave abort_flag out of elasticd.run"

_STATE = {
    torch.optim.Adam: "step",
    torch.optim.AdamW: "step",
    torch.optim.Adagrad: "step",
    torch.optim.SGD: "momentum_buffer",
}
"""The optimizers that torch steps fused, and what each keeps of a parameter from its first step
on."""


class QueuedSteps:
    """The steps of one state's only optimizer in one generation; for the training thread."""

    def __init__(
        self, flag: AbortFlag, optimizer: torch.optim.Optimizer, session: StepSession
    ) -> None:
        self._flag, self._optimizer, self._session = flag, optimizer, session
        self._reading: FlagReading | None = None
        """Of the step that is not committed; None if that has waited, or there is none."""
        self._monitor = ParameterMonitor()
        parameters = list(parameters_of(optimizer))
        self._monitor.bind((optimizer,), parameters)
        self._count = len(parameters)
        self._commits = 0
        self._is_off = False

    @classmethod
    def of(
        cls,
        flag: AbortFlag,
        optimizers: Iterable[torch.optim.Optimizer],
        entries: Iterable[object],
        session: StepSession,
        on_nan: str,
    ) -> "QueuedSteps":
        """Return the queue for a state that has these optimizers and entries.

        Raises:
            CallError: steps of such a state cannot be queued; the message says what to change.
        """
        if on_nan != OnNan.IGNORE:
            raise CallError(
                f"elasticd.run(..., abort_flag=True) and --on-nan {on_nan}, which reads gradients "
                f"before each step and so waits for them: use --on-nan ignore, {_OUT}."
            )
        for entry in entries:
            if isinstance(entry, torch.amp.GradScaler) and entry.is_enabled():
                raise CallError(
                    "elasticd.run(..., abort_flag=True) and a GradScaler in State(...): both would "
                    f"tell the optimizer to leave out a step. Train in bfloat16 without it, {_OUT}."
                )
        found = list(optimizers)
        if len(found) != 1:
            raise CallError(
                f"elasticd.run(..., abort_flag=True) and {len(found)} optimizers in State(...): "
                f"one could step where another does not. Give it one optimizer, {_OUT}."
            )
        _check_optimizer(found[0], flag.device)
        return cls(flag, found[0], session)

    def queue(self, optimizer: torch.optim.Optimizer) -> bool:
        """Let the step that begins now be left out if the flag is up; return False if it has to
        wait for its collectives.

        Raises:
            Interrupted: the generation is over.
            GroupBroken: the group was aborted, or a peer is gone and nobody said why.
        """
        # In the first steps it is found out what the script does; that look waits for the device.
        if not self._is_bare(optimizer) or self._is_off or is_probed(self._commits):
            return False
        if self._flag.device.type == "cuda":
            self._session.synchronize(cuda.NOTHING)  # It only says whether a peer is gone.
        else:
            self._session.synchronize()
        self._reading = self._flag.read(self._session.sequence())
        vars(optimizer)["found_inf"] = self._reading.found_inf
        return True

    def end_step(self) -> None:
        """Take note that the optimizer's step has ended."""
        own = vars(self._optimizer)
        if self._reading is not None and own.get("found_inf") is self._reading.found_inf:
            del own["found_inf"]
        self._monitor.rebaseline(is_probe=is_probed(self._commits))

    def confirm(self) -> None:
        """Wait until it is known whether the device makes the step that was queued last.

        Raises:
            Interrupted: it is not known, and the generation is over.
            GroupBroken: the device left the step out.
        """
        reading = self._reading
        if reading is None:
            return
        try:
            if self._flag.device.type == "cuda":
                self._session.synchronize(reading)
        except (Interrupted, GroupBroken):
            # All of its collectives had ended before anybody ended them: the step counts.
            if not reading.query() or reading.is_set():
                raise
        if not reading.query() or reading.is_set():
            raise GroupBroken("The last step was left out, because its generation was aborted.")

    def end_commit(self) -> None:
        """Take note of a commit, and of the writes between the step and the commit."""
        self._reading = None
        self._commits += 1
        if self._monitor.has_changed(is_close=self._monitor.is_hashed) and not self._is_off:
            self._is_off = True
            sys.stderr.write(
                "elasticd: something writes to parameters between optimizer.step() and commit(), "
                "so from now on each step waits for its gradients (abort_flag=True is not used).\n"
            )
        self._monitor.drop_baseline()

    def made(self, begun: dict[Any, bool]) -> dict[Any, bool]:
        """Return which steps of those that the host ended the device made, and if it ended them.

        The generation is over, and its group is closed. A step that is not known, or half made, has
        not ended.
        """
        reading, self._reading = self._reading, None
        if reading is None:
            return begun
        until_s = time.monotonic() + PATIENCE_S
        try:
            if cuda.await_event(reading, lambda: time.monotonic() > until_s):
                if not reading.is_set():
                    return begun
                if not self._monitor.has_changed(is_close=True):
                    return {}
        except RuntimeError:
            pass  # The device has failed, and nobody knows what it did.
        return dict.fromkeys(begun, False)

    def _is_bare(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether nobody but torch's own fused code takes part in this step."""
        own = vars(optimizer)
        if self._reading is not None and own.get("found_inf") is self._reading.found_inf:
            del own["found_inf"]  # Of a step that an exception ended before it began.
        self._reading = None
        if optimizer is not self._optimizer or "found_inf" in own or "grad_scale" in own:
            return False
        step = own.get("step")  # A scheduler of torch's counts the calls.
        if step is not None and not getattr(step, "_wrapped_by_lr_sched", False):
            return False
        if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
            return False
        hooks = (step_hooks._global_optimizer_pre_hooks, step_hooks._global_optimizer_post_hooks)
        if not all(_is_own(hook) for some in hooks for hook in some.values()):
            return False
        groups = optimizer.param_groups
        if sum(len(group["params"]) for group in groups) != self._count:
            return False  # Nobody watches a parameter that was added.
        return all(_is_begun(optimizer, group) for group in groups)


def _is_own(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).partition(".")[0] == "elasticd"


def _is_begun(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    """Return whether a step of this group adds nothing to the optimizer's state."""
    if group.get("fused") is not True:
        return False
    kept, state = _STATE[type(optimizer)], optimizer.state
    if kept == "momentum_buffer" and not group["momentum"]:
        return True
    trained = (each for each in group["params"] if each.grad is not None)
    return all(each in state and state[each].get(kept) is not None for each in trained)


def _check_optimizer(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Refuse an optimizer that cannot leave out a step on the device.

    Raises:
        CallError: the message says what to change.
    """
    name = type(optimizer).__name__
    parameters = list(parameters_of(optimizer))
    if any(map(is_distributed, parameters)):
        raise CallError(
            "elasticd.run(..., abort_flag=True) and a sharded model: its ranks meet before each "
            f"step, and so wait for the device anyway. Keep the whole model on each rank, {_OUT}."
        )
    is_fused = all(group.get("fused") is True for group in optimizer.param_groups)
    if type(optimizer) not in _STATE or not is_fused:
        known = ", ".join(each.__name__ for each in _STATE)
        raise CallError(
            f"elasticd.run(..., abort_flag=True) and a {name} that cannot leave out a step on the "
            f"device: give State(...) one of torch's own {known} with fused=True, {_OUT}."
        )
    odd = next((each.device for each in parameters if each.device != device), None)
    if odd is not None:
        raise CallError(
            f"elasticd.run(..., abort_flag=True) and parameters of the {name} on {odd}, where the "
            f"flag of {device} is not read: move all of them to elasticd.device(), {_OUT}."
        )
