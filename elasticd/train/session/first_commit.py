"""The report of a generation's first commit: the phases of the change, and the repeated steps."""

import dataclasses
import time

from elasticd.channel.worker import Formed, Stepped

__all__ = ["FirstCommit"]


class FirstCommit:
    """The first commit of one generation, made as soon as the group has formed."""

    def __init__(self, formed: Formed, *, begun: int, note: str) -> None:
        """Keep the facts that are known by now.

        Args:
            formed: what the rank reported when the group had formed.
            begun: the number of steps that this rank had begun before the change of world.
            note: the sentence that says where the state is from.
        """
        self.after = formed.step
        """The step before the first commit."""
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
        """Return the message about the commit of `step`, made at `at_s` of the monotonic clock."""
        measured = {**self._stepped.phases_s, "step": at_s - self._formed_at_s}
        phases_s = {name: round(seconds, 4) for name, seconds in measured.items()}
        return dataclasses.replace(self._stepped, step=step, phases_s=phases_s)
