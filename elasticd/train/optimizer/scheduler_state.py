"""Reads a learning rate scheduler's state without what cannot be sent to another rank."""

from typing import Any

from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import SWALR

__all__ = ["SchedulerState"]

_CURVES = [
    getattr(SWALR, name) for name in ("_linear_anneal", "_cosine_anneal") if hasattr(SWALR, name)
]
"""What torch 2.9 has in the state of an SWALR as its `anneal_func`; later versions leave it out."""


class SchedulerState:
    """Saves and loads as the scheduler does, without the functions of torch's SWALR.

    A scheduler that loads the rest keeps the function that the script gave it, which is the same.
    """

    def __init__(self, scheduler: LRScheduler) -> None:
        self.scheduler = scheduler

    @property
    def is_plain(self) -> bool:
        """Return whether the state is all attributes but the optimizer, as torch's own is."""
        own = vars(self.scheduler)
        return (
            type(self.scheduler).state_dict is LRScheduler.state_dict
            and self.scheduler.state_dict().keys() == own.keys() - {"optimizer"}
        )

    def state_dict(self) -> Any:
        return _without_curves(self.scheduler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scheduler.load_state_dict(state)


def _without_curves(state: Any) -> Any:
    if not isinstance(state, dict) or ("_schedulers" not in state and "anneal_func" not in state):
        return state
    # This may be the scheduler's own dictionary, so that nothing is removed from it.
    kept = {key: each for key, each in state.items() if not any(each is curve for curve in _CURVES)}
    if isinstance(kept.get("_schedulers"), list):
        kept["_schedulers"] = [_without_curves(each) for each in kept["_schedulers"]]
    return kept
