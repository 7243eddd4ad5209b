"""Keeps the numbers that the script gives to `commit`.

A number on the host is read at once. A number on a GPU is fetched now and then, and nothing waits
for it.
"""

import time
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from elasticd.errors import CallError
from elasticd.tensors import cuda
from elasticd.train.scalars.histogram import check_histograms

__all__ = ["ScalarFeed", "CommitScalars", "Tensors"]

COPY_EVERY_S = 0.2
"""How often a number is fetched from a GPU: as often as a heartbeat carries it."""


class ScalarFeed(Protocol):
    """The port for the numbers of each commit, not only the newest; `train.scalars.event_feed`
    implements it.
    """

    def commit(
        self,
        step: int,
        given: Mapping[str, float | torch.Tensor],
        histograms: "Tensors",
    ) -> None:
        """Take the numbers that the commit of this step was given."""

    def poll(self) -> None:
        """Do the work that is due, without waiting; the heartbeat's thread calls this five times a
        second.
        """


_Given = dict[str, float | torch.Tensor]
Tensors = Mapping[str, torch.Tensor]


class CommitScalars:
    """The numbers of the last commit; any thread may call `known`."""

    def __init__(self) -> None:
        self._given: _Given = {}
        self._fetched: tuple[dict[torch.device, Any], _Given] = {}, {}
        """Pinned copies of numbers on GPUs, complete after these events, one of each GPU."""
        self._last: dict[str, float] = {}
        self._next_copy_s = 0.0
        self.feed: ScalarFeed | None = None

    def checked(
        self, scalars: Mapping[str, float | torch.Tensor], hist: Tensors | None = None
    ) -> _Given:
        """Return the numbers without their graphs.

        Raises: CallError: a value is no real number of one element, or `hist` no dict of tensors.
        """
        if hist is not None:
            check_histograms(hist)
        given: _Given = {}
        for name, value in scalars.items():
            if type(value) is float:
                given[name] = value
                continue
            if isinstance(value, torch.Tensor):
                is_on_its_way = cuda.is_used() and value.is_pinned()
                is_plain = type(value) is torch.Tensor and value.is_cpu and value.numel() == 1
                if is_plain and not is_on_its_way:
                    # It is faster to read it than to make another tensor without its graph.
                    number = value.item()
                    if type(number) is not complex:
                        given[name] = float(number)
                        continue
                if value.numel() != 1:
                    raise CallError(
                        f"commit({name}=...) got a tensor of shape {list(value.shape)}: give one "
                        "number, for example its mean()."
                    )
                if value.is_complex() or value.is_meta:
                    raise CallError(
                        f"commit({name}=...) got a tensor that is no real number: give its abs(), "
                        "or one that has a value."
                    )
                given[name] = _local(name, value.detach())
                continue
            try:
                given[name] = float(value)
            except OverflowError:
                raise CallError(f"commit({name}=...) got a number that no float holds.") from None
            except (TypeError, ValueError):
                raise CallError(
                    f"commit({name}=...) got a {type(value).__name__}: give a number or a tensor "
                    "of one element."
                ) from None
        return given

    def set(self, given: _Given, step: int, histograms: Tensors | None) -> None:
        """Keep the numbers that the commit of this step was given."""
        self._given = given
        if self.feed is not None and (given or histograms):
            self.feed.commit(step, given, histograms or {})
        if time.monotonic() >= self._next_copy_s:
            on_gpu = {n: v for n, v in given.items() if isinstance(v, torch.Tensor) and v.is_cuda}
            if on_gpu:
                self._fetch(on_gpu)
            else:
                self._next_copy_s = time.monotonic() + COPY_EVERY_S

    def known(self) -> dict[str, float]:
        """Return the numbers that are known; a number from a GPU may be of an earlier commit."""
        if self.feed is not None:
            self.feed.poll()
        arrivals, fetched = self._fetched
        if fetched and _are_done(arrivals):
            self._last = {name: float(value) for name, value in fetched.items()}
        given = self._given
        here = {
            name: float(value)
            for name, value in given.items()
            if not isinstance(value, torch.Tensor) or value.device.type == "cpu"
        }
        return {name: number for name, number in self._last.items() if name in given} | here

    def _fetch(self, on_gpu: dict[str, torch.Tensor]) -> None:
        if not _are_done(self._fetched[0]):
            return
        copies: _Given = {
            name: torch.empty((), dtype=value.dtype, pin_memory=True).copy_(
                value.reshape(()), non_blocking=True
            )
            for name, value in on_gpu.items()
        }
        arrivals = {each: cuda.mark(each) for each in {value.device for value in on_gpu.values()}}
        self._fetched = arrivals, copies  # In one assignment, because another thread looks.
        self._next_copy_s = time.monotonic() + COPY_EVERY_S


def _are_done(arrivals: Mapping[torch.device, Any]) -> bool:
    return all(cuda.is_done(event, device) for device, event in arrivals.items())


def _local(name: str, value: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a DTensor, which must be replicated.

    To read a sharded DTensor is a collective, which the thread that reads must never begin.

    Raises: CallError: the DTensor is not replicated.
    """
    placements = getattr(value, "placements", None)
    if placements is None:
        return value
    if not all(placement.is_replicate() for placement in placements):
        raise CallError(
            f"commit({name}=...) got a DTensor that is not replicated: give its full_tensor()."
        )
    local: torch.Tensor = value.to_local()  # type: ignore[attr-defined]
    return local
