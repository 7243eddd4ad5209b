"""Writes histories by hand: a run without a flaw, to which a test then adds one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos.history.records import (
    Applied,
    Began,
    Ended,
    Entered,
    History,
    Record,
    Struck,
    Told,
    Took,
)

__all__ = ["Play", "losses"]

SAMPLES = 10
BATCH = 4
BATCHES = 3
"""Of an epoch: 4, 4 and 2 samples."""
STEP_S = 0.1


@dataclass(kw_only=True)
class Play:
    """Each call adds what a right run would have written; the clock goes on by itself."""

    full_size: int = 2
    slots: int = 1
    """Of each node."""
    now_s: float = 100.0
    records: list[Record] = field(default_factory=list)
    faults: int = 0

    def generation(
        self, number: int, pids: Sequence[int], *, base: int, steps: int, unfinished: int = 0
    ) -> None:
        """All ranks enter and make so many steps; a step more that only some ranks apply."""
        for rank, pid in enumerate(pids):
            self.records.append(
                Entered(
                    at_s=self.now_s,
                    generation=number,
                    rank=rank,
                    size=len(pids),
                    step=base,
                    epoch=base // BATCHES,
                    digest=f"d{base}",
                    pid=pid,
                    node=f"n{rank // self.slots}",
                )
            )
        for step in range(base + 1, base + steps + 1):
            self.step(number, pids, step)
        if unfinished:
            self.step(number, pids, base + steps + 1, appliers=range(unfinished))

    def step(
        self,
        generation: int,
        pids: Sequence[int],
        step: int,
        *,
        appliers: Iterable[int] | None = None,
    ) -> None:
        epoch, batch = divmod(step - 1, BATCHES)
        whole = range(batch * BATCH, min(SAMPLES, (batch + 1) * BATCH))
        self.now_s += STEP_S
        for rank, pid in enumerate(pids):
            share = tuple(whole[rank :: len(pids)])
            self.records.append(
                Took(
                    at_s=self.now_s,
                    generation=generation,
                    rank=rank,
                    size=len(pids),
                    step=step,
                    epoch=epoch,
                    samples=share,
                    loss=len(share) / step,
                    pid=pid,
                )
            )
        for rank in range(len(pids)) if appliers is None else appliers:
            self.records.append(
                Applied(
                    at_s=self.now_s + 0.01,
                    generation=generation,
                    rank=rank,
                    step=step,
                    digest=f"d{step}",
                    pid=pids[rank],
                )
            )

    def fault(self, kind: str = "worker-kill", *, is_overlap: bool = False, **more: Any) -> None:
        """Strike between two steps."""
        self.now_s += STEP_S / 2
        self.records.append(
            Struck(
                at_s=self.now_s,
                number=self.faults,
                kind=kind,
                victim="rank 1",
                is_overlap=is_overlap,
                recover_s=1.0,
                changes_world=True,
                **more,
            )
        )
        self.faults += 1

    def told(self, generation: int, reason: str, *, after_s: float = 0.0, **more: Any) -> None:
        """Have `why` say it, some time after the last step."""
        at_s = self.now_s + after_s
        self.records.append(Told(at_s=at_s, generation=generation, reason=reason, **more))

    def change(self, old: type[Record], values: dict[str, object], **where: object) -> None:
        """Put other values into the records that fit."""
        for place, record in enumerate(self.records):
            if isinstance(record, old) and all(
                getattr(record, name) == value for name, value in where.items()
            ):
                fields = {name: getattr(record, name) for name in record.__slots__}
                self.records[place] = old(**{**fields, **values})

    def drop(self, old: type[Record], **where: object) -> None:
        self.records = [
            record
            for record in self.records
            if not isinstance(record, old)
            or any(getattr(record, name) != value for name, value in where.items())
        ]

    def history(self, *, phase: str = "succeeded") -> History:
        began = Began(
            at_s=99.0,
            scenario="play",
            seed=1,
            full_size=self.full_size,
            samples=SAMPLES,
            faults=self.faults,
        )
        ended = Ended(at_s=self.now_s + 1, phase=phase, message="")
        return History([began, *self.records, ended])


def losses(steps: int) -> dict[int, float]:
    """The undisturbed run."""
    return {step: 1 / step for step in range(1, steps + 1)}
