"""What a rank tells with the first commit of a generation: how it came there, and what it lost."""

import dataclasses
import time

from elasticd.channel.worker import Formed, Stepped

__all__ = ["FirstCommit"]


class FirstCommit:
    """That of one generation, which is yet to come. Made when the group has formed."""

    def __init__(self, formed: Formed, *, begun: int, note: str) -> None:
        """`begun` is the number of steps that this rank had begun before the change of world."""
        self.after = formed.step
        """The step before it."""
        self._formed_at_s = time.monotonic()
        self._stepped = Stepped(
            generation=formed.generation,
            step=formed.step,
            phases_s=formed.phases_s,
            lost_steps=max(0, begun - formed.step),
            place=formed.place,
            note=note,
        )

    def stepped(self, step: int, at_s: float) -> Stepped:
        """Return the message about it; `at_s` is when it was made, by the monotonic clock."""
        measured = {**self._stepped.phases_s, "step": at_s - self._formed_at_s}
        phases_s = {name: round(seconds, 4) for name, seconds in measured.items()}
        return dataclasses.replace(self._stepped, step=step, phases_s=phases_s)
